"""What the job's own source does again, or for nothing, and what it says itself of a better way."""

import re

from perfdoctor.diagnosis import Fix
from perfdoctor.reports.english.phrases import percent

# Of each statement what stays, what is new, and how the result is put.
_Pieces = tuple[tuple[str, str, str], ...]
# How many statements are shown of what a function makes again, and what the key of one holds on to.
_SHOWN, _OF = 3, re.compile(r"\bid\(([\w.]+)\)")
_DIMENSIONS = {"[:, at]": 1, "[..., at]": -1}


def _and(texts: list[str]) -> str:
    return " and ".join(dict.fromkeys(texts))


def _length(of: str, put: str) -> str:
    """How long a tensor is along the dimension that something is put at."""
    return f"{of}.shape[{_DIMENSIONS.get(put, 0)}]"


def joined_cut(*, line: str, share: float, pieces: _Pieces) -> Fix:
    kept, new, put = pieces[0]
    count = f"{kept.rpartition('.')[0]}.written" if "." in kept else "written"
    first = f"at = ({count} + torch.arange({_length(new, put)})) % {_length(kept, put)}"
    return Fix(
        f"Write what is new into {_and([one for one, _, _ in pieces])} at {line}, in place",
        f"{percent(share)} of the time goes there: all that is kept is joined anew, and so copied, each time to add a "
        "little. What is new has to go in each time: into one tensor of the whole size, made once, where the oldest "
        "is. Its order then begins anywhere, which is the same for what reads all of it or draws from it.",
        f"# before: {kept} is made once, of its whole size, and {count} = 0\n{first}\n"
        + "".join(f"{kept}{put or '[at]'} = {new}\n" for kept, new, put in pieces)
        + f"{count} += {_length(new, put)}",
    )


def joined(*, line: str, share: float, pieces: _Pieces) -> Fix:
    kept, new, put = pieces[0]
    place = put or "[at]"
    return Fix(
        f"Let {_and([one for one, _, _ in pieces])} not be joined anew each time at {line}",
        f"{percent(share)} of the time goes there: all that there is already is copied each time to add a little, and "
        "the longer it is, the longer that takes.",
        "".join(f"parts.append({new})\n" for _, new, _ in pieces[:1])
        + "# parts = [] at first; and torch.cat(parts) once, where all of it is needed\n"
        "# or, where it is read each time and needs no gradients: made once, of the size that it will have\n"
        f"end = used + {_length(new, put)}\n"
        f"{kept}{place.replace('at', 'used:end')} = {new}\n"
        f"used = end  # there is {kept}{place.replace('at', ':used')} so far",
    )


def one_hot(*, line: str, share: float, pieces: _Pieces) -> Fix:
    return Fix(
        f"Look rows up at {line}, instead of multiplying by ones and zeros",
        f"{percent(share)} of the time goes there, without the backward pass of it: nearly all products are with zero. "
        "The result and the gradients are the same.",
        "\n".join(
            f"torch.nn.functional.embedding({new}, {kept}){put and f' + {put}'}  # in place of one_hot and the product"
            for kept, new, put in pieces
        ),
    )


def two_passes(*, line: str, share: float, pieces: _Pieces) -> Fix:
    return Fix(
        f"Go backward once, from the sum, at {line}",
        f"{percent(share)} of the time goes into the two passes, and what both losses are made of is gone through "
        "twice. Gradients add up: those of the sum are the same.",
        "\n".join(f"({kept} + {new}).backward()  # in place of both" for kept, new, _ in pieces),
    )


def one_by_one(*, line: str, share: float, pieces: _Pieces) -> Fix:
    return Fix(
        f"Ask for several derivatives in one call, at {line}",
        f"{percent(share)} of the time goes into these calls, and each goes through the whole graph of what it is of. "
        "One call goes through it once for all; the derivatives are the same.",
        "\n".join(f"{kept} = {new}  # in place of the calls one by one" for kept, new, _ in pieces),
    )


def indexed_late(*, line: str, share: float, pieces: _Pieces) -> Fix:
    layers = _and([one for one, _, _ in pieces])
    return Fix(
        f"Give {layers} only the position that is used, at {line}",
        f"{percent(share)} of the time goes there, without the backward pass of it: {layers} does the same to each "
        "position by itself, and all but one are left out afterwards.",
        "\n".join(f"{kept}({new})" for kept, new, _ in pieces),
    )


def enlarged(*, line: str, share: float, pieces: _Pieces) -> Fix:
    layers = _and([one for one, _, _ in pieces])
    return Fix(
        f"Enlarge what {layers} puts out, and not what it is given, at {line}",
        f"{percent(share)} of the time goes there, without the backward pass of it: {layers} does the same to each "
        "position by itself, and what enlarges a map does the same to all its channels. Either may come first; before, "
        "the layer has fewer positions to go through, and what it puts out mostly has fewer channels to enlarge.",
        "\n".join(f"{new}  # in place of both" for _, new, _ in pieces),
    )


def turned(*, line: str, share: float, pieces: _Pieces) -> Fix:
    losses = _and([one for one, _, _ in pieces])
    return Fix(
        f"Give {losses} the classes as they lie in memory, at {line}",
        f"{percent(share)} of the time goes there, without the backward pass of it: turned into the second dimension, "
        "the scores of one position lie far apart, and are gone through in jumps. As rows of one long batch they lie "
        "beside each other; the loss is the same (of scores with three dimensions).",
        "\n".join(f"{new}  # in place of the call" for _, new, _ in pieces),
    )


def _of_pairs(line: str, share: str, pieces: _Pieces) -> tuple[str, str, str]:
    """Title, reason and code for pairs that are written out."""
    return (
        f"Compute all pairs at {line} as a product of matrices",
        f"{share}: the rows of both matrices are spread over each other, and all numbers of all pairs are written to "
        "memory and read again before they become one number for each pair. One call of linear algebra makes that "
        "number without writing the others. Results differ in the last digits; distances next to zero may differ by "
        "more.",
        "\n".join(f"{new}  # in place of the call" for _, new, _ in pieces),
    )


def all_pairs(*, line: str, share: float, pieces: _Pieces) -> Fix:
    return Fix(*_of_pairs(line, f"{percent(share)} of the time goes there, without the backward pass of it", pieces))


def pairs_forward(*, line: str, share: float, pieces: _Pieces) -> Fix:
    return Fix(*_of_pairs(line, f"{percent(share)} of the time goes there", pieces))


def unchanged(*, line: str, share: float, pieces: _Pieces) -> Fix:
    shown, code = pieces[:_SHOWN], []
    for number, (text, key, put) in enumerate(shown):
        kept = f"kept_{number}" if len(shown) > 1 else "kept"
        of = "".join(f"{one}, " for one in _OF.findall(key)).rstrip()
        place = "return" if put == "return" else f"{put or 'same'} ="
        code += [f"{kept} = {{}}  # at the top of the file", f"key = ({key},)" if key else "key = ()"]
        if of:
            where = '"made"'
            code += [f'if {kept}.get("key") != key:', f"    {kept}.update(key=key, of=({of}), made={text})"]
        else:
            where = "key"
            code += [f"if key not in {kept}:", f"    {kept}[key] = {text}"]
        code += [f"{place} {kept}[{where}]" + ("" if put else "  # in place of the call")]
    return Fix(
        f"Keep {_and([text for text, _, _ in shown])} at {line}: it is the same in each step",
        f"{percent(share)} of the time goes there, and all that it is made of stays as it is while the loop trains. "
        "Make it before the loop and hand it over, or keep it as below, where it is made anew for anything else. Leave "
        "it where something writes into the result.",
        "\n".join(code),
    )


def copied(*, line: str, share: float, pieces: _Pieces) -> Fix:
    code = []
    for kept, new, _ in pieces:
        of_state = new.endswith(".state_dict()")
        one = f"for name, value in {new}.items(): {kept}[name].copy_(value)"
        later = one if of_state else f"{kept}.load_state_dict({new}.state_dict())"
        code.append(
            f"if {kept} is None: {kept} = copy.deepcopy({new})  # the first time\n"
            f"else:\n    with torch.no_grad():\n        {later}"
        )
    return Fix(
        f"Copy into {_and([one for one, _, _ in pieces])} at {line}, instead of making another object",
        f"{percent(share)} of the time goes there: all objects are made anew, with fresh memory for each tensor. The "
        "numbers alone take far less.",
        "\n".join(code),
    )


def listed(*, line: str, share: float, pieces: _Pieces) -> Fix:
    _, made, put = pieces[0]
    rest = f", {put}" if "=" in put else ""
    return Fix(
        f"Put arrays together in one call at {line}, before a tensor is made of them",
        f"{percent(share)} of the time goes there: of a list, a tensor is made number by number, through Python.",
        f"torch.as_tensor(numpy.stack({made}){rest})  # of arrays\n"
        f"# of tensors: torch.stack({made}); of numbers, keep all of them in one tensor and index that",
    )


def stacked(*, line: str, share: float, pieces: _Pieces) -> Fix:
    kept = pieces[0][0]
    return Fix(
        f"Keep {kept} as tensors, and take the rows of a batch in one call, at {line}",
        f"{percent(share)} of the time goes there: samples are drawn from {kept} and put together one by one, through "
        "Python. Of a tensor that has a row for each sample, one call takes all rows of a batch.",
        "rows = torch.randint(0, filled, (batch_size,))  # with repeats; without: torch.randperm(filled)[:batch_size]\n"
        f"batch = part[rows]  # in place of drawing from {kept} and of each call that puts a part of them together\n"
        "# once, for each part of a sample: part = torch.empty(capacity, *one.shape, dtype=one.dtype)\n"
        f"# where a sample goes into {kept}: part[at] = one",
    )


def carried(*, line: str, share: float, pieces: _Pieces) -> Fix:
    kept = pieces[0][0]
    return Fix(
        f"Detach {kept} from round to round, at {line}",
        f"{percent(share)} of the time goes into this backward pass. {kept} is carried from one round of the loop to "
        "the next with its graph, which the pass keeps: each goes through all rounds before it as well, and longer "
        "each time. Where gradients need not reach further back, cut the graph at the beginning of a round, or of "
        "every tenth one.",
        f"{kept} = {kept}.detach()\nloss.backward()",
    )


def averaged(*, line: str, share: float, pieces: _Pieces) -> Fix:
    average = "torch.optim.swa_utils.get_ema_multi_avg_fn({})([*{}], [*{}], 0)  # in place of the loop"
    return Fix(
        f"Average all parameters in one call at {line}",
        f"{percent(share)} of the time goes there: parameter by parameter, through Python and by calls of their own.",
        "\n".join(average.format(weight, kept, new) for kept, new, weight in pieces),
    )


def descended(*, line: str, share: float, pieces: _Pieces) -> Fix:
    over, step, _ = pieces[0]
    return Fix(
        f"Update all parameters in one call at {line}",
        f"{percent(share)} of the time goes there: parameter by parameter, through Python and by calls of their own.",
        f"optimizer = torch.optim.SGD({over}, lr={step}, fused=True)  # once, before the first step\n"
        "optimizer.step()  # in place of the loop\n"
        "# where the rate changes: optimizer.param_groups[0]['lr'] = rate",
    )


def made_new(*, line: str, share: float, pieces: _Pieces) -> Fix:
    kept, value, _ = pieces[0]
    return Fix(
        f"Update in place at {line}",
        f"{percent(share)} of the time goes there: each sum and each product makes a tensor of its own, in memory "
        "that has to be fetched and gone over again. Methods that end in _ write into the tensor that they have.",
        f"# in place of {kept} = {value}\n"
        f"{kept}.mul_(beta).add_(gradient, alpha=1 - beta)  # so for all that is kept; products: addcmul_\n"
        "parameter.addcdiv_(kept, divisor, value=-rate)  # the same for the parameter itself",
    )


def modules_made(*, line: str, share: float, pieces: _Pieces) -> Fix:
    what = _and([one for one, _, _ in pieces]) or "the layers"
    return Fix(
        f"Make {what} once, before the loop, and not at {line}",
        f"{percent(share)} of the time new layers are made there, and their weights drawn at random, in each step. "
        "What is made once keeps its weights; weights that are to differ in each step can be drawn into it.",
        "layers = make_layers(...)  # once, before the loop\noutput = layers(...)  # in place of the call",
    )


def checked(*, line: str, share: float, pieces: _Pieces) -> Fix:
    return Fix(
        "Let distributions not check their values",
        f"{percent(share)} of the time torch.distributions checks parameters and samples, as at {line}; on a GPU each "
        "check waits for the GPU as well. That is on by default, and meant for models that do not work yet.",
        "torch.distributions.Distribution.set_default_validate_args(False)  # once, before the loop",
    )


def proxied(*, line: str, share: float, pieces: _Pieces) -> Fix:
    return Fix(
        f"Keep what is asked for at {line} in shared memory, not in a manager's process",
        f"{percent(share)} of the time goes there: each access to a manager's list, dict or value is a message to its "
        "process and an answer. A tensor in shared memory is read and written by all processes directly, and many of "
        "its items in one call. Where it has to be a manager's, fetch and put many items at once: kept[3:9] is one "
        "message.",
        "kept = torch.tensor(list(kept)).share_memory_()  # once, before the loop\n"
        "kept[rows] = values  # in place of the loop",
    )


def rotated(*, line: str, share: float, pieces: _Pieces) -> Fix:
    return Fix(
        "Let log files grow larger before new ones are begun",
        f"{percent(share)} of the time goes into beginning new ones, as at {line}: each time all files that are kept "
        "are renamed, one by one.",
        "logging.handlers.RotatingFileHandler(path, maxBytes=64_000_000, backupCount=4)",
    )


def activation(*, line: str, share: float, pieces: _Pieces) -> Fix:
    return Fix(
        "Use the activation that torch computes in one operation",
        f"{percent(share)} of the time goes into it in the forward pass, as at {line}, and the backward pass goes "
        "through the same operations once more: gelu_new and gelu_fast are written in Python, as powers, products, a "
        "sum and a tanh, each of which writes a tensor of its own. gelu_pytorch_tanh is the same function. It goes "
        "into the configuration before the model is made, or to from_pretrained; some models name it hidden_act.",
        'config.activation_function = "gelu_pytorch_tanh"',
    )


def uncached(*, line: str, share: float, pieces: _Pieces) -> Fix:
    return Fix(
        f"Keep keys and values while text is generated at {line}",
        f"{percent(share)} of the time text is generated, and use_cache=False has the model go through all of the text "
        "again for each new token. With a cache it goes through the new token alone, and generates the same. Only "
        "training with activation checkpointing has to do without.",
        "model.generation_config.use_cache = True",
    )


def formatted(*, line: str, share: float, pieces: _Pieces) -> Fix:
    return Fix(
        f"Make no text of tensors in each step, at {line}",
        f"{percent(share)} of the time goes into it: numbers are read, compared and written one by one. An f-string "
        "is made in any case, also for a logger that takes nothing of it; and a norm mostly says as much.",
        "if logger.isEnabledFor(logging.DEBUG): logger.debug(...)\nif step % 100 == 0: print(tensor.norm().item())",
    )


def computed_again(*, line: str, share: float, pieces: _Pieces) -> Fix:
    return Fix(
        f"Compute the parametrized weight at {line} once per step",
        f"{percent(share)} of the time such weights (torch.nn.utils.parametrize) are computed, anew in each round of "
        "that loop, and the backward pass goes through each computation as well. The gradients are the same.",
        "with torch.nn.utils.parametrize.cached():\n    output = model(inputs)",
    )


def weights_unused(*, line: str, share: float, pieces: _Pieces) -> Fix:
    layer, given, _ = pieces[0]
    return Fix(
        f"Have {layer} compute no weights that nobody takes, at {line}",
        f"{percent(share)} of the time goes into the softmax of its weights alone, beside the products around it and "
        "the backward pass of all of them. The layer gives the weights back unless need_weights=False, and writes all "
        "pairs to memory for that. Without, they are computed in one fused operation; the output is the same.",
        f"output, _ = {layer}({given}, need_weights=False)",
    )


def written_out(*, line: str, share: float, pieces: _Pieces) -> Fix:
    queries, keys, values = pieces[0]
    return Fix(
        f"Let scaled_dot_product_attention do the attention at {line}",
        f"{percent(share)} of the time goes there, without the backward pass: the weights of all pairs are written to "
        "memory and read again by each operation. Fused, they never are. A mask goes into attn_mask, True where there "
        "is attention (a causal one is is_causal=True), another scale into scale, and dropout into dropout_p.",
        f"torch.nn.functional.scaled_dot_product_attention({queries}, {keys}, {values})  "
        "# in place of the calls one by one",
    )
