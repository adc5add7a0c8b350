"""Processes that a trainer asks by itself: environments, or a pool of its own."""

from perfdoctor.diagnosis import Fix


def ask_together(*, helpers: int, at_once: float | None) -> Fix:
    now = "" if at_once is None else f" While the trainer waits, {at_once:.1f} of them work on average."
    return Fix(
        f"Ask all {helpers} helper processes before waiting for an answer",
        "Each answer that is waited for alone costs a switch to the helper and back, and nobody else works meanwhile."
        f"{now}",
        """\
for connection, request in zip(connections, requests):
    connection.send(request)
answers = [connection.recv() for connection in connections]""",
    )


def ask_ahead() -> Fix:
    return Fix(
        "Ask for the next batch before training on this one",
        "The helpers then work while the trainer computes, and not while it waits.",
        """\
connection.send(next_request)  # before the step
train(batch)
batch = connection.recv()""",
    )


def larger_requests() -> Fix:
    return Fix(
        "Let each helper do more per request",
        "Each request and each answer wakes a process, and is pickled and copied: several environments or samples for "
        "each helper cost that once. Large arrays are better left in shared memory.",
        """\
connection.send(requests)  # a list of them
answers = connection.recv()
# in the helper: connection.send([answer(request) for request in connection.recv()])""",
    )


def send_arrays() -> Fix:
    return Fix(
        "Send arrays instead of lists and objects",
        "Each number, tuple or object is pickled on one side and built anew on the other; an array is copied as it is.",
        "connection.send(numpy.asarray(rows, dtype=numpy.float32))  # in the helper, in place of the list",
    )


def step_together(*, line: str | None) -> Fix:
    place = f" Most of it is at {line}." if line else ""
    return Fix(
        "Step several environments at the same time",
        f"Environments step one by one, in the trainer, while the model waits.{place} Copies of it in processes of "
        "their own step together, and the model chooses all their actions in one call.",
        "envs = gymnasium.make_vec(env_id, num_envs=8, vectorization_mode='async')\n"
        "observations, infos = envs.reset()  # one row for each environment",
    )
