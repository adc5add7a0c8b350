"""The model's arithmetic on the CPU: less of it, cheaper, and on all cores that it may have."""

from perfdoctor.diagnosis import Fix
from perfdoctor.reports.english.phrases import blocks_run_again, counted, exports, fewer_checkpoints, percent


def computing() -> str:
    return "The model's own arithmetic on the CPU"


def computing_refuted() -> str:
    return "Halve the batch size: if a step then takes as long as before, the time does not go into arithmetic."


def little_multiplied(*, part: float) -> str:
    return (
        f"Only {percent(part)} of that is matrix products, convolutions and FFTs; the rest goes over whole tensors, "
        "operation by operation, and is as fast as memory is."
    )


def memory_bound(*, line: str, share: float) -> Fix:
    name = line.partition(" ")[2].rpartition(">.")[2]
    return Fix(
        f"Let {name} go over its tensors fewer times",
        f"{percent(share)} of the time goes into operations at {line} that go over whole tensors and multiply little: "
        "each reads them from memory and writes another one. Look for numbers that are computed and not used, and for "
        "one operation of torch.nn.functional in place of several. Compiled, they run in one pass without that, and so "
        "does the backward pass: try it, as of 22 such functions 17 became 1.06 to 1.8 times as fast and four slower "
        "(FFTs, interpolation, sizes that change). It takes a C++ compiler, and its first calls up to a minute.",
        f"{name} = torch.compile({name})  # once, before the loop",
    )


def unequal(*, share: float) -> str:
    return f"with equal work for all ranks a step would be {percent(share)} shorter"


def unequal_refuted() -> str:
    return (
        "Give every rank the same batch for some steps: if the others still wait as long, it is not the work that "
        "differs but the host or what else runs there."
    )


def single_precision(*, part: float, unfolds: bool) -> Fix:
    longer = ", and convolutions, which oneDNN does in single precision only, even longer" if unfolds else ""
    return Fix(
        "Compute in single precision",
        f"{percent(part)} of the arithmetic whose precision is seen is in double precision, which takes twice as "
        f"long{longer}. NumPy and pandas make numbers of 64 bits, and tensors that are made from theirs stay so.",
        "model = model.float()\n"
        "features = features.float()  # once, where they are made; targets too, unless they are class indices",
    )


def all_instructions(*, name: str, value: str, instead: str) -> Fix:
    results = f" For the same results in each run on one CPU, {name}={instead} is enough." if instead else ""
    return Fix(
        f"Unset {name}",
        f"It is set to {value} in this job, which keeps the arithmetic from the wider vectors and matrix instructions "
        f"that newer CPUs have.{results}",
        f"unset {name}  # where the script sets it itself: leave that out",
    )


def use_onednn(*, part: float) -> Fix:
    return Fix(
        "Let oneDNN do the convolutions",
        f"{percent(part)} of the time is in convolutions of PyTorch's own and NNPACK's. In single precision PyTorch "
        "has oneDNN do them, several times as fast, unless that is switched off or a batch is one small sample.",
        "torch.backends.mkldnn.enabled = True  # as it is by default",
    )


def reduce_at_once(*, part: float) -> Fix:
    return Fix(
        "Reduce few elements by operations on whole tensors",
        f"{percent(part)} of the time torch sets an iterator up for each single number that a reduction puts out, and "
        "as a rule it then walks for two to three times as long: norm over another dimension than the last one does "
        "so, and std and var. Where each number is of few elements, whole operations are many times as fast.",
        "length = (x * x).sum(dim).clamp_min(1e-12).sqrt()  # in the place of x.norm(dim=dim)\n"
        "variance = (x - x.mean(dim, keepdim=True)).square().mean(dim)  # of x.var(dim, correction=0)\n"
        "# parts need no stack: torch.sqrt((a * a + b * b).clamp_min(1e-12)) for torch.stack([a, b]).norm(dim=0)",
    )


def pad_ffts(*, part: float) -> Fix:
    return Fix(
        "Let FFTs have a length that is a product of small primes",
        f"{percent(part)} of the time goes into FFTs of a length with a large prime factor, which are made out of a "
        "convolution, by FFTs of more than twice the length. A convolution may be padded to any length that is long "
        "enough; where all frequencies are used as they are, choose the size of the data or of its windows.",
        "import scipy.fft\n\nn = scipy.fft.next_fast_len(x.shape[-1], real=True)\n"
        "spectrum = torch.fft.rfft(x, n=n)\ny = torch.fft.irfft(spectrum, n=n)[..., : x.shape[-1]]",
    )


def take_parts_at_once(*, line: str, share: float) -> Fix:
    return Fix(
        f"Take all parts of a tensor at once, and not one by one{f' at {line}' if line else ''}",
        f"{percent(share)} of the time gradients of zeros are made and added up: a part that is taken by an index has "
        "a gradient of the whole tensor's size, and there is one of these for each part. unbind takes all of them, "
        "split all that are longer, and they have one gradient together.",
        "parts = sequence.unbind(1)  # once, before the loop\npart = parts[at]  # in place of sequence[:, at]",
    )


def drop_gradients(*, share: float) -> Fix:
    return Fix(
        "Drop gradients between steps, and do not set them to zero",
        f"{percent(share)} of the time all gradients are filled with zeros, and the next ones added to these. Where "
        "they are dropped, the next ones take their place. That is the default since PyTorch 2.0.",
        "optimizer.zero_grad(set_to_none=True)",
    )


def fill_less(*, line: str, share: float) -> Fix:
    return Fix(
        f"Fill less memory at {line}" if line else "Fill less memory",
        f"{percent(share)} of the time memory is filled with one number there, as zeros, ones and full do, and also "
        "empty where torch.use_deterministic_algorithms was asked for, unless told otherwise. What stays the same "
        "can be made once; where each element gets a value anyway, nothing need be filled.",
        "result = torch.empty(size)  # in place of the call\n"
        "torch.utils.deterministic.fill_uninitialized_memory = False",
    )


def keep_memory(*, part: float, variables: tuple[tuple[str, str], ...]) -> Fix:
    return Fix(
        "Keep freed memory for the next step",
        f"{percent(part)} of the time the kernel hands out memory, page by page, that had been given back: large "
        "tensors are freed and made anew in every step. glibc then keeps what is freed, and the process stays as large "
        "as it ever was; jemalloc and tcmalloc do the same.",
        exports(variables),
    )


def equal_work(*, rank: int | None, share: float) -> Fix:
    who = "Ranks wait for each other by turns" if rank is None else f"The other ranks wait for rank {rank}"
    return Fix(
        "Give all ranks equal work",
        f"{who}: batches are larger or longer there, or the host is slower. With equal work a step takes as long as "
        f"the ranks' mean, which is {percent(share)} less.",
        "order = sorted(range(len(data)), key=length_of)  # of all the data, before ranks take their parts\n"
        "mine = order[rank::world_size]  # its batches are like those of other ranks; shuffle them in the same order",
    )


def keep_activations(*, again: float, used: float | None, full: bool, loop: str) -> Fix:
    return Fix(
        "Checkpoint fewer blocks, or none",
        blocks_run_again(again, used, "the host's memory", full=full),
        fewer_checkpoints(loop),
    )


def pad_less(*, place: str) -> Fix:
    return Fix(
        "Pad each batch to its longest text instead of every text to one length",
        f"{place} pads every text to one length, and the model computes the padding as well. How much that is depends "
        "on the texts: print (batch['attention_mask'] == 0).float().mean() of some batches. That part of what is "
        "computed of these texts can go. Some models need the one length (Whisper); with torch.compile, pad to a few "
        "lengths (pad_to_multiple_of) instead of any.",
        "samples = [tokenizer(text, truncation=True) for text in texts]  # padded nowhere yet\n"
        "loader = DataLoader(samples, batch_size=8, collate_fn=transformers.DataCollatorWithPadding(tokenizer))",
    )


def freeze_rest(*, place: str, backward: float | None) -> Fix:
    takes = "" if backward is None else f", {percent(backward)} of the time,"
    return Fix(
        "Compute no gradients of what is not trained",
        f"The optimizer at {place} is given a part of the model only, and no gradient is kept from the rest: the "
        f"backward pass{takes} computes them and nobody uses them. What it computes for the part itself stays.",
        "model.requires_grad_(False)  # before the optimizer is made\n"
        "model.head.requires_grad_(True)  # the part that it is given",
    )


def detach_unused(*, place: str, part: float | None) -> Fix:
    takes = "" if part is None else f" The call takes {percent(part)} of the time, and its backward pass comes on top."
    return Fix(
        "Compute no gradients for a module that does not step",
        f"What is called at {place} goes into another module, whose optimizer steps next. The backward pass goes on "
        f"through it, and its own gradients are cleared before its optimizer takes them.{takes}",
        "with torch.no_grad():\n    fake = generator(noise)  # as it is called there\n"
        "# where a later step needs its gradients, it calls it anew",
    )


def freeze_untrained(*, place: str, part: float | None, module: str) -> Fix:
    at = f" at {place}" if place else ""
    takes = "" if part is None else f" The call takes {percent(part)} of the time, and its backward pass comes on top."
    return Fix(
        "Compute no gradients of a module that nobody trains",
        f"{module} only evaluates, and no optimizer takes its parameters; but they ask for gradients, so the backward "
        f"pass goes through what it computes{at} as well.{takes}",
        f"{module}.requires_grad_(False)  # once, behind {module}.eval(); what it is given may still get gradients",
    )


def more_threads(*, more: int, threads: int, in_code: bool, idle: float, cores: float) -> Fix:
    limit = f"The script limits it to {counted(threads, 'thread')}" if in_code else f"OMP_NUM_THREADS is {threads}"
    return Fix(
        f"Let the arithmetic use {more} threads",
        f"{limit}, and {idle:.2g} of {cores:g} cores are idle.",
        f"torch.set_num_threads({more})" if in_code else f"OMP_NUM_THREADS={more} python train.py",
    )
