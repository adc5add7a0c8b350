"""Calls of libraries that give the same whenever they are given the same, and change nothing."""

from perfdoctor.knowledge.frames import meaning

# Modules whose functions compute, and nothing else: torch's, NumPy's, SciPy's, and some around them.
COMPUTING_MODULES = frozenset((
    "math", "cmath", "itertools", "functools", "operator", "copy",
    "torch", "torch.linalg", "torch.fft", "torch.sparse", "torch.special", "torch.nn.functional",
    "torch.signal.windows", "torch.nested", "torch.nn.Transformer", "torch.nn.utils.rnn",
    "numpy", "numpy.linalg", "numpy.fft", "numpy.ma", "numpy.polynomial",
    "scipy.linalg", "scipy.fft", "scipy.fftpack", "scipy.signal", "scipy.signal.windows", "scipy.sparse",
    "scipy.sparse.linalg", "scipy.sparse.csgraph", "scipy.spatial", "scipy.spatial.distance", "scipy.special",
    "scipy.ndimage", "scipy.interpolate", "einops",
    "torch_geometric.utils", "torch_sparse", "torch_scatter", "torchvision.ops", "torchaudio.functional",
))  # fmt: skip
# But not these of their functions: they draw, read or write files, or set how all others work.
OTHER_FUNCTIONS = frozenset((
    "load", "save", "from_file", "fromfile", "loadtxt", "genfromtxt", "savetxt", "savez", "savez_compressed", "memmap",
    "manual_seed", "seed", "compile", "load_npz", "save_npz", "empty", "empty_like", "empty_strided", "tee", "count",
    "cycle", "multinomial", "bernoulli", "poisson", "normal", "gumbel_softmax", "rrelu", "partial", "lru_cache",
    "cache", "negative_sampling", "no_grad", "enable_grad", "inference_mode",
))  # fmt: skip
# Likewise whatever has one of these words in its name.
DRAWING_WORDS = ("rand", "dropout", "sample", "shuffle", "set_default", "get_default", "use_deterministic")
# Methods of tensors and arrays that make something of them, those of sparse ones included.
TENSOR_METHODS = frozenset((
    "abs", "acos", "add", "all", "allclose", "amax", "amin", "angle", "any", "argmax", "argmin", "argsort", "argwhere",
    "asin", "astype", "atan", "atan2", "bfloat16", "bincount", "bmm", "bool", "bucketize", "byte", "cdouble", "ceil",
    "cfloat", "cholesky", "chunk", "clamp", "clamp_max", "clamp_min", "clip", "clone", "coalesce", "conj", "contiguous",
    "copy", "cos", "cosh", "count_nonzero", "cpu", "cross", "crow_indices", "col_indices", "ccol_indices",
    "row_indices", "cummax", "cummin", "cumprod", "cumsum", "cuda", "deg2rad", "det", "detach", "diag", "diag_embed",
    "diagonal", "diff", "dist", "div", "dot", "double", "eq", "erf", "exp", "exp2", "expand", "expand_as", "expm1",
    "flatten", "flip", "fliplr", "flipud", "float", "floor", "floor_divide", "fmod", "gather", "ge", "gt", "half",
    "histc", "imag", "index_add", "index_copy", "index_fill", "index_select", "indices", "int", "inverse", "isclose",
    "isfinite", "isin", "isinf", "isnan", "item", "kron", "kthvalue", "le", "log", "log10", "log1p", "log2",
    "log_softmax", "logical_and", "logical_not", "logical_or", "logical_xor", "logsumexp", "long", "lt", "masked_fill",
    "masked_scatter", "masked_select", "matmul", "matrix_power", "max", "maximum", "mean", "median", "min", "minimum",
    "mm", "mode", "moveaxis", "movedim", "mul", "mv", "narrow", "ne", "neg", "nonzero", "norm", "numpy", "outer",
    "permute", "pinverse", "pow", "prod", "qr", "quantile", "ravel", "reciprocal", "relu", "remainder", "repeat",
    "repeat_interleave", "reshape", "reshape_as", "roll", "rot90", "round", "rsqrt", "scatter", "scatter_add",
    "scatter_reduce", "select", "short", "sigmoid", "sign", "sin", "sinc", "sinh", "slogdet", "softmax", "sort",
    "split", "sqrt", "square", "squeeze", "std", "sub", "sum", "svd", "swapaxes", "swapdims", "t", "take",
    "take_along_dim", "tan", "tanh", "tensor_split", "tile", "to", "to_dense", "to_sparse", "to_sparse_coo",
    "to_sparse_csr", "toarray", "tocoo", "tocsc", "tocsr", "todense", "tolist", "topk", "trace", "transpose", "tril",
    "triu", "trunc", "type", "type_as", "unbind", "unflatten", "unfold", "unique", "unique_consecutive", "unsqueeze",
    "values", "var", "view", "view_as", "where", "new_tensor", "new_zeros", "new_ones", "new_full",
))  # fmt: skip
# Of these the ones that may give what is itself a part of the tensor, which is written into with it.
VIEWS = frozenset((
    "chunk", "contiguous", "cpu", "cuda", "detach", "diagonal", "double", "expand", "expand_as", "flatten", "float",
    "half", "indices", "int", "long", "movedim", "moveaxis", "narrow", "numpy", "permute", "ravel", "reshape",
    "reshape_as", "select", "split", "squeeze", "swapaxes", "swapdims", "t", "tensor_split", "to", "transpose", "type",
    "type_as", "unbind", "unflatten", "unfold", "unsqueeze", "values", "view", "view_as",
))  # fmt: skip
# Attributes of tensors that are their numbers, or a view of them.
PARTS_OF_TENSORS = frozenset(("T", "mT", "H", "mH", "real", "imag", "data"))
# Attributes of graphs as PyTorch Geometric and its like have them, which say what is joined to what.
PARTS_OF_GRAPHS = frozenset(("edge_index", "edge_attr", "edge_weight", "adj", "adj_t"))
COMPUTING_BUILTINS = frozenset((
    "abs", "all", "any", "bool", "complex", "dict", "divmod", "enumerate", "float", "frozenset", "int", "len", "list",
    "max", "min", "pow", "range", "reversed", "round", "set", "slice", "sorted", "str", "sum", "tuple", "zip",
))  # fmt: skip
# Methods of containers that change them.
CHANGES_CONTAINER = frozenset((
    "add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popitem", "popleft", "push", "put",
    "remove", "reverse", "setdefault", "update",
))  # fmt: skip
# Of those the ones that tensors have too, which change nothing there.
NOT_OF_TENSORS = CHANGES_CONTAINER - TENSOR_METHODS
# Functions that write into what they are given first: NumPy's, and those of the standard library.
WRITES_INTO_FIRST = frozenset((
    "copyto", "put", "place", "putmask", "fill_diagonal", "put_along_axis", "shuffle", "heappush", "heappop", "heapify",
    "heapreplace", "heappushpop", "insort", "insort_left", "insort_right",
))  # fmt: skip
# What leads to a model's own numbers, which training changes.
OF_MODELS = frozenset((
    "parameters", "named_parameters", "buffers", "named_buffers", "state_dict", "modules", "weight", "bias", "grad",
    "requires_grad", "requires_grad_", "Parameter", "param_groups",
))  # fmt: skip
# Frames of torch and of Python between a call in the job's own code and what is called, which hand on what is given:
# of modules, of DistributedDataParallel, of decorators.
HANDS_ON = (
    meaning(r"torch/nn/modules/module\.py", "", ""),
    meaning(r"torch/nn/parallel/distributed\.py", "", ""),
    meaning(r"torch/utils/_contextlib\.py", "", ""),
    meaning(r"torch/amp/autocast_mode\.py", "", ""),
    meaning(r"contextlib\.py", "inner", ""),
)
