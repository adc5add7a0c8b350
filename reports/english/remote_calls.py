"""Functions that other processes run (torch.distributed.rpc)."""

from perfdoctor.diagnosis import Fix


def waiting() -> str:
    return "Waiting for answers of other processes that it calls"


def waiting_refuted() -> str:
    return (
        "Let one step ask for nothing, and go on with what the step before was answered: if it takes as long as "
        "before, the calls are not the cause."
    )


def one_call(*, line: str | None) -> Fix:
    place = f" They are made at {line}." if line else ""
    return Fix(
        "Ask for many tensors in one call",
        f"Each call of torch.distributed.rpc is a message there and one back, and wakes threads on both sides.{place} "
        "A call may return a list; what does not need the answer can be done before it is waited for.",
        """\
def all_values(owner):
    return [value.detach() for value in owner.local_value().parameters()]
answer = torch.distributed.rpc.rpc_async(server, all_values, args=(owner,))
for old, new in zip(model.parameters(), answer.wait()):
    old.data.copy_(new)""",
    )
