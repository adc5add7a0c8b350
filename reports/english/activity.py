"""What cannot be drawn of a job, and why."""


def no_tracks() -> str:
    return "Nothing is drawn of what trainers and workers did over time: no thread of theirs was sampled."


def no_code() -> str:
    return "No flame graph: no Python stacks of the trainer were seen."


def no_steps() -> str:
    return (
        "No times of single steps, and no usual step beside the slowest one: where one ends was not seen. `attach "
        "--steps` counts them from outside; `with diagnose():` in the training loop marks them and their phases."
    )


def workers_left_out(*, count: int) -> str:
    more = "one worker is" if count == 1 else f"{count} workers are"
    return f"Of the loader's workers those seen longest are drawn; {more} not."


def of_traces() -> str:
    return "A trace has no samples of threads and stacks: nothing is drawn over time and over the code."
