"""What cannot be drawn of a job, and why."""


def no_tracks() -> str:
    return "What trainers and workers did over time is not drawn: none of their threads were sampled."


def no_code() -> str:
    return "No flame graph: no Python stacks of the trainer were seen."


def no_steps() -> str:
    return (
        "Single steps are not drawn: where one ends was not seen. `attach --steps` counts them from outside; `with "
        "diagnose():` in the training loop marks them and their phases."
    )


def workers_left_out(*, count: int) -> str:
    more = "one worker is" if count == 1 else f"{count} workers are"
    return f"Only the loader workers seen longest are drawn; {more} not."


def of_traces() -> str:
    return "A trace has no samples of threads and stacks, so there are no charts over time and no flame graph."
