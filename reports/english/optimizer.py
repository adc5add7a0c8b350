"""The optimizer's step: in one call, compiled, or on the GPU."""

from perfdoctor.diagnosis import Fix
from perfdoctor.reports.english.phrases import percent

# ``Optimizer.load_state_dict`` takes all settings of its groups from the checkpoint.
_RESTORED = """
# A checkpoint from before restores its own setting, so after load_state_dict:
for group in optimizer.param_groups:
    group["fused"] = True"""


def fused(*, share: float, gpu: bool, trainer: bool, update: str) -> Fix:
    made = "AdamW" if update == "Adam" else update
    change = (
        "TrainingArguments(..., optim='adamw_torch_fused')"
        if trainer
        else f"optimizer = torch.optim.{made}(..., fused=True)"
    )
    now = "several kernels for each group of parameters" if gpu else "several operators for each parameter"
    return Fix(
        "Update all parameters in one call",
        f"The optimizer takes {percent(share)} of the time; unless set otherwise, it runs {now}.",
        change + ("  # Adam takes it too" if made == "AdamW" and not trainer else "") + ("" if trainer else _RESTORED),
    )


def several_at_once(*, share: float, update: str) -> Fix:
    made = "AdamW" if update == "Adam" else update
    return Fix(
        "Update several parameters in each call",
        f"The optimizer takes {percent(share)} of the time, and runs several operators for each parameter. Fused steps "
        "on the CPU, which take one call, come with PyTorch 2.4.",
        f"optimizer = torch.optim.{made}(..., foreach=True)",
    )


def larger_passes(*, loop: str) -> Fix:
    return Fix(
        "Make each update of fewer, larger passes",
        f"The loop at {loop} makes one update of several passes, and each calls every operator for a part of the batch "
        "only. One pass over all of it gives the same gradients, where the loss is a mean and no layer normalises over "
        "the batch.",
        """\
loss = criterion(model(batch), targets)  # all of the batch, or as much as memory has room for
loss.backward()
# if each sample's own gradient is needed: torch.func.vmap(torch.func.grad(loss_of_one), in_dims=(None, 0, 0))""",
    )


def sparse_tables(*, share: float, zeros: float) -> Fix:
    of_zeros = f" {percent(zeros)} go into gradients of tables, which are zeros but for the rows used." if zeros else ""
    return Fix(
        "Update only the rows of embedding tables that a batch touches",
        f"The optimizer's arithmetic takes {percent(share)} of the time: it goes over all rows of all tables in each "
        f"step.{of_zeros} If most parameters are in large embedding tables, sparse gradients leave out the rows that "
        "are not used. SparseAdam has no weight decay; SGD and Adagrad take sparse gradients as they are.",
        "table = torch.nn.Embedding(rows, width, sparse=True)\n"
        "optimizers = [torch.optim.SparseAdam(table.parameters(), lr=lr), torch.optim.Adam(others, lr=lr)]",
    )


def compiled(*, share: float) -> Fix:
    return Fix(
        "Compile the optimizer's step",
        f"The optimizer takes {percent(share)} of the time in many small kernels, and has no fused step as Adam has. "
        "Compiled, it runs in a few.",
        "step = torch.compile(optimizer.step)  # step() in place of optimizer.step()\n"
        "# learning rates as tensors, or each new one compiles it again: lr=torch.tensor(0.001)",
    )


def on_gpu(*, share: float, used: float | None) -> Fix:
    memory = "" if used is None else f" {percent(used)} of the GPU's memory is in use."
    return Fix(
        "Update the parameters on the GPU",
        f"{percent(share)} of the time the optimizer's step runs on the CPU, and the GPU waits for it. Offloading it "
        f"saves memory of the GPU, and nothing else.{memory}",
        "fully_shard(model)  # without offload_policy=CPUOffloadPolicy()\n"
        "# DeepSpeed's configuration: no offload_optimizer; where it must stay, ratio of ZeRO-Offload++ below 1",
    )
