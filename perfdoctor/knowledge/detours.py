"""Calls of libraries that do again what was done before, or more than is used; by their last names, or by frames."""

from collections.abc import Mapping
from typing import NamedTuple

from perfdoctor.knowledge.frames import FrameMeaning, meaning

# Which detour a statement makes: what is kept is joined anew, cut to its length or growing; a table is multiplied by
# ones and zeros; two backward passes go through one graph; derivatives of the same are asked for one by one; a layer
# computes what is then left out; a model is copied as a new object; arrays go into a tensor one number after the
# other. And three go over parameters one by one: a mean of them is kept, they are moved against their gradients, or
# what an optimizer keeps of each is made as a new tensor.
JOINED_CUT, JOINED, ONE_HOT, TWO_PASSES, ONE_BY_ONE, INDEXED_LATE, COPIED, LISTED = (
    "joined_cut", "joined", "one_hot", "two_passes", "one_by_one", "indexed_late", "copied", "listed",
)  # fmt: skip
AVERAGED, DESCENDED, MADE_NEW = "averaged", "descended", "made_new"
# And samples that are drawn from a list are put together for each batch.
STACKED = "stacked"
# And a layer is given ones and zeros.
ONE_HOT_LAYER = "one_hot_layer"
# And a backward pass goes through all rounds before it as well.
CARRIED = "carried"
# And attention is written out, product by product.
WRITTEN_OUT = "written_out"
# And a layer of torch's for attention gives its weights as well, which nobody takes.
WEIGHTS_UNUSED = "weights_unused"
# Where that is so the layer has them computed, which takes a softmax; with dropout, attention is not fused on a CPU
# (aten/src/ATen/native/transformers/sdp_utils_cpp.cpp, check_for_dropout).
IN_ATTENTION = meaning(r"torch/nn/functional\.py", "multi_head_attention_forward", "")
WEIGHS, DROPS_OUT = (meaning(r"torch/nn/functional\.py", name, "") for name in ("softmax", "dropout"))
# What such a layer is given, and the switch.
ATTENTION_TAKES, WEIGHTS_SWITCH = ("query", "key", "value"), "need_weights"
# And a layer that does the same to each position gets a map that was enlarged before.
ENLARGED = "enlarged"
# And a loss over classes gets them along a dimension that is not the last one in memory.
TURNED = "turned"
# And of two matrices all pairs of rows are written out, to be reduced to one number each; also where no gradients go
# through that.
ALL_PAIRS, PAIRS_FORWARD = "all_pairs", "pairs_forward"
# What a module computes is no part of these, though it is called in the same statement.
WITHOUT_MODULES = frozenset((JOINED_CUT, JOINED, ONE_HOT, LISTED, STACKED))
# These are known by frames of torch, whatever the source looks like: layers are made anew in each step, distributions
# check all that they are given, and a weight is computed anew each time that a loop asks for it.
MODULES_MADE, CHECKED, COMPUTED_AGAIN = "modules_made", "checked", "computed_again"
# And text is made of tensors.
FORMATTED = "formatted"
# And a manager's process is asked for each item of what it keeps, or a log goes into a new file time and again.
PROXIED, ROTATED = "proxied", "rotated"
# And an activation of transformers is written out, operation by operation, that torch has as one.
ACTIVATION = "activation"
# And, where the source says so, a language model goes through the whole text again for each token that it generates.
UNCACHED = "uncached"
# And by both: the same is made in each step of what the loop that trains never changes.
UNCHANGED = "unchanged"
BY_FRAMES: Mapping[str, tuple[FrameMeaning, ...]] = {
    # torch.nn's layers, and what fills them with numbers
    MODULES_MADE: (meaning(r"torch/nn/modules/\w+\.py", "__init__", ""), meaning(r"torch/nn/init\.py", "", "")),
    # torch.distributions with validate_args, which is on by default
    CHECKED: (
        meaning(r"torch/distributions/constraints\.py", "", ""),
        meaning(r"torch/distributions/distribution\.py", "__init__ _validate_sample", ""),
    ),
    # torch.nn.utils.parametrize
    COMPUTED_AGAIN: (meaning(r"torch/nn/utils/parametrize\.py", "", ""),),
    FORMATTED: (meaning(r"torch/_tensor_str\.py", "", ""),),
    PROXIED: (meaning(r"multiprocessing/managers\.py", "_callmethod", ""),),
    ROTATED: (meaning(r"logging/handlers\.py", "doRollover", ""),),
    # "gelu_new", GPT-2's own, and "gelu_fast": both are torch's gelu(approximate="tanh")
    ACTIVATION: (meaning(r"transformers/activations\.py", "NewGELUActivation.forward FastGELUActivation.forward", ""),),
    UNCACHED: (meaning(r"transformers/generation/utils\.py", "", ""),),
}
# How the source says that, of a generation or of a model's configuration; and what is at work where it is not so.
CACHE_SWITCH = "use_cache"
KEEPS_KEYS = meaning(r"transformers/cache_utils\.py", "", "")
# What makes one tensor or array of several, all of them copied, without a further dimension.
JOINS = frozenset(("cat", "concat", "concatenate", "hstack", "vstack", "append"))
# Of these the ones that join along the dimension that comes second.
JOINS_SECOND = frozenset(("hstack",))
JOINING_PACKAGES = frozenset(("torch", "numpy", "jax"))
# How the dimension along which something is joined is called.
DIMENSION = ("dim", "axis")
# A one for each index and zeros for all others, what makes numbers of another kind of it, and its product with a table.
ONES_OF_INDEX = frozenset(("one_hot",))
CONVERTS = frozenset(("float", "double", "half", "bfloat16", "to", "type", "type_as"))
PRODUCTS = frozenset(("matmul", "mm"))
# Of attention: what multiplies its batches, turns a factor, and makes weights of its scores.
BATCHED_PRODUCTS = PRODUCTS | {"bmm"}
TURNS = frozenset(("transpose", "permute", "swapaxes", "swapdims", "mT", "T"))
SOFTMAX = frozenset(("softmax",))
# What gives derivatives by what it is asked for, all of them of one pass.
DERIVES = frozenset(("grad",))
# Layers that do to each position by itself what they do, and how a class is given them.
BY_POSITION = frozenset(("Linear",))
# The same of maps, where their kernel is of one position; and what enlarges a map, a function and layers.
BY_PIXEL = frozenset(("Conv1d", "Conv2d", "Conv3d"))
ENLARGES = frozenset(("interpolate",))
ENLARGING_LAYERS = frozenset(("Upsample", "UpsamplingBilinear2d", "UpsamplingNearest2d"))
# Losses over classes, and the layers of these; what turns the last dimension into the second one of three.
LOSSES_OF_CLASSES = frozenset(("cross_entropy", "nll_loss"))
LAYERS_OF_CLASSES = frozenset(("CrossEntropyLoss", "NLLLoss"))
SWAPS_SECOND = frozenset((("transpose", "1, 2"), ("transpose", "2, 1"), ("swapaxes", "1, 2"), ("permute", "0, 2, 1")))
# What reduces the numbers of a pair to one, and what it is told of how; what is summed up then, with what it is given.
NORMS = frozenset(("norm", "vector_norm"))
SIMILARITIES = frozenset(("cosine_similarity",))
ORDER = ("p", "ord")
POWERS = {"pow": ["2"], "power": ["2"], "square": [], "abs": [], "absolute": []}
# Modules of which functions of tensors are called, and of arrays.
NUMPY = frozenset(("np", "numpy"))
TENSOR_MODULES = NUMPY | {"torch", "F", "functional", "linalg", "LA"}
# What is given a matrix to keep it.
MATRICES = frozenset(("Parameter",))
# What makes a tensor of nothing but numbers.
MAKES = frozenset((
    "arange", "linspace", "eye", "full", "ones", "zeros", "triu", "tril", "tril_indices", "triu_indices", "meshgrid",
    "outer", "cartesian_prod", "combinations", "hann_window", "hamming_window", "generate_square_subsequent_mask",
))  # fmt: skip
# Of these the ones that take next to nothing, and are mostly made to be written into.
FILLED = frozenset(("zeros", "ones", "full"))
# What of a tensor is no data: it says only how large it is, and where.
SHAPES = frozenset(("shape", "device", "dtype", "ndim"))
SHAPE_CALLS = frozenset(("size", "dim", "len", "numel", "int", "min", "max"))
# What makes a tensor of a list's numbers, each by itself.
MAKES_OF_LIST = frozenset(("tensor", "as_tensor", "FloatTensor", "LongTensor", "Tensor"))
# What makes one tensor or array of several of the same size; what draws of a list, and what draws whole numbers.
STACKS = frozenset(("stack", "cat", "concatenate", "vstack", "array", "asarray", "tensor", "as_tensor"))
DRAWS_SAMPLES = frozenset(("random.sample", "random.choices"))
DRAWS_NUMBERS = frozenset(("sample", "choices", "choice", "randint", "integers", "permutation", "randperm"))
# What leads to the numbers of a tensor without its graph.
SAME_DATA = frozenset(("data", "detach"))
# Copies an object with all that it holds; and what of torch then works below it.
COPIES = frozenset(("deepcopy",))
COPIES_TENSORS = "__deepcopy__"


class Freed(NamedTuple):
    """What goes where a detour is not made, in times of what its lines take themselves.

    Attributes:
        least: at least.
        likely: what to expect.
        most: at most.
        backward: what goes beyond that is of the backward pass.
    """

    least: float
    likely: float
    most: float
    backward: bool = False


# Of a layer and of a product the backward pass goes as well: it computes twice what the forward pass does, or as much
# where one of the factors is given. Joining also fetches fresh memory, which other lines then find cold: where 0.23 of
# the work was there, 0.23 and 0.32 went. Of two passes the second one is what may go. Of derivatives one by one most of
# the calls go, and passes through what they made: of 0.12, 0.13 and 0.22 went. Of models of four sizes on a CPU, 0.32
# to 0.93 of a mean of the parameters went, and 0.28 to 0.73 of a descent; norms of gradients, and clamping these, took
# as long in PyTorch's call as in a loop. Of three optimizers' updates of four models 0.45 to 0.60 went in place, and
# 0.47 to 0.68 in calls for all parameters. Of three replay buffers 0.6 to 1.2 of what drawing and putting
# together took went, with rows in tensors. Of a backward pass through up to 400 rounds 0.99 went.
# Of attention of seven sizes, 16 to 1,024 long, 0.34 to 0.76 of both passes went. Where stacks were in making layers
# for 0.18 and 0.35 of the time, 0.21 and 0.23 went; where they were in checks for 0.04, 0.09, 0.13 and 0.27, there went
# 0.11, 0.17, 0.17 and 0.28. Of six language models' generation 0.42 to 0.91 went with a cache, and 0.41 of a job that
# was in it for 0.51. Of seven attention layers with weights that nobody takes there went 1.0 to 4.3 times what their
# softmax took, of two that hardly took any nothing. Where stacks were in making text for 0.26 of the time, 0.44 went:
# Python that calls small operations is seen less often than it runs. Of a map that was enlarged before a layer instead
# of afterwards, 0.52 went where both took 0.12 in the forward pass; of a loss by classes that lay apart, 0.44 of 0.19.
# Of pairs of matrices of ten sizes, 0.9 to 1.0 of all went, and the backward pass took 0.6 to 7 times the forward one:
# gradients of what was spread are added up again, in jumps. Of activations of four sizes that were written out, 0.6 to
# 2.3 times their forward pass went with torch's. Of one job each: 0.38 and 0.49 went where a manager was asked for 0.36
# to 0.4, and 0.38 where log files were renamed for 0.14, which is not relied on.
FREED = {
    JOINED_CUT: Freed(0.8, 1.1, 1.4),
    JOINED: Freed(0.5, 1.0, 1.0),
    ONE_HOT: Freed(0.8, 1.5, 2.0, backward=True),
    TWO_PASSES: Freed(0.0, 0.5, 0.6),
    ONE_BY_ONE: Freed(0.3, 1.0, 1.9, backward=True),
    INDEXED_LATE: Freed(0.5, 2.0, 3.0, backward=True),
    TURNED: Freed(1.0, 2.2, 3.0, backward=True),
    ALL_PAIRS: Freed(0.8, 1.5, 9.0, backward=True),
    PAIRS_FORWARD: Freed(0.8, 1.0, 1.0),
    ENLARGED: Freed(1.0, 3.0, 4.5, backward=True),
    COPIED: Freed(0.5, 0.9, 1.0),
    LISTED: Freed(0.0, 0.8, 1.0),
    AVERAGED: Freed(0.3, 0.6, 0.9),
    DESCENDED: Freed(0.3, 0.6, 0.7),
    STACKED: Freed(0.4, 0.8, 1.3),
    CARRIED: Freed(0.0, 0.85, 1.0),
    MADE_NEW: Freed(0.4, 0.5, 0.65),
    WRITTEN_OUT: Freed(1.0, 1.5, 2.4, backward=True),
    MODULES_MADE: Freed(0.8, 1.0, 1.2),
    CHECKED: Freed(0.8, 1.4, 2.8),
    FORMATTED: Freed(0.9, 1.4, 1.7),
    PROXIED: Freed(0.7, 0.95, 1.0),
    ROTATED: Freed(0.7, 0.95, 1.2),
    ACTIVATION: Freed(0.5, 1.6, 2.3, backward=True),
    UNCACHED: Freed(0.4, 0.8, 0.92),
    UNCHANGED: Freed(0.8, 1.0, 1.0),
    WEIGHTS_UNUSED: Freed(1.0, 2.5, 4.2, backward=True),
}
