"""Reports of two runs side by side: the answer, how sure it is, and what forbids it; names of facts and headings."""

_NAMES = {
    "world_size": "Ranks",
    "steps": "How steps are known",
    "settings.on_gpu": "On a GPU",
    "level": "How it is known",
    "perfdoctor": "perfdoctor",
    "torch": "PyTorch",
    "neighbour_cores": "Cores that others keep busy",
    "watched_seconds": "Seconds watched",
    "settings.workers": "Loader workers",
}
_FORBIDDEN = {
    "steps": "A step need not be the same in both, and a profiler takes time of its own in each.",
    "world_size": "With another number of ranks, a step is other work.",
    "settings.on_gpu": "They did not run on the same kind of processor.",
}
_PROMISES = {
    "came true": ", and {} is measured: it came true.",
    "less than predicted": ", and {} is measured: less than predicted.",
    "more than predicted": ", and {} is measured: more than predicted.",
    "not seen": ", and no gain is seen: it was not made, or does not help.",
    "unknown": "; {} is measured, which is too uncertain to tell.",
}
_STEP_IS = {
    "optimizer steps": "steps of the optimizer, counted from outside",
    "backward passes": "backward passes, counted from outside",
}
_COSTS = {"faster": "less", "slower": "more", "unknown": "too little to tell"}


def faster(*, factor: str, before: str, after: str) -> str:
    return f"{factor} faster: a step takes {after} instead of {before}"


def slower(*, longer: str, before: str, after: str) -> str:
    return f"{longer} slower: a step takes {after} instead of {before}"


def same(*, before: str, after: str) -> str:
    return f"No difference can be shown: a step takes {before} before, {after} after"


def unsure(*, before: str, after: str) -> str:
    return f"How sure it is cannot be determined: a step takes {after} instead of {before}"


def not_comparable() -> str:
    return "The paces cannot be compared"


def unknown_pace() -> str:
    return "The pace is not known"


def and_share(*, said: str, cause: str, before: str, after: str) -> str:
    return f"{said}; {cause} takes {after} of the time instead of {before}"


def interval(*, low: str, high: str, confidence: str, floor: str, longer: bool, passes: bool) -> str:
    said = (
        f"The speed-up lies between {low} and {high} with {confidence} confidence. The noise floor is {floor}: less "
        "cannot be distinguished from what these runs vary by anyway."
    )
    said += " Longer runs on a quiet machine may lower it." if longer else ""
    return said + (
        " A step is one backward pass here: how many make a step of the training was not seen." if passes else ""
    )


def no_interval() -> str:
    return (
        "One of these reports says nothing of how much the run varies: it was made by an older perfdoctor, or saw "
        "fewer than two steps. From the recording it can be made anew: perfdoctor report RECORDING --json FILE.json"
    )


def too_little() -> str:
    return (
        "Too little was watched to tell: what these runs vary by anyway could hide twice the pace, or half of it. "
        "Longer runs on a quiet machine tell more."
    )


def forbidden(*, what: str, name: str, before: str, after: str) -> str:
    return f"{name}: {before} before, {after} after. {_FORBIDDEN[what]}"


def only_shares(*, forbidden: tuple[str, ...]) -> str:
    return f"{' '.join(forbidden)} Only shares of the time are compared."


def no_steps(*, source: str | None, implied: str | None) -> str:
    guess = "" if implied is None else f" If the model's own arithmetic takes what it took, it is {implied}."
    return (
        f"No step of {source or 'either run'} was marked, counted or traced: whether the job became faster was not "
        "seen. Only shares of the time are compared: where one falls the others rise, however long a step takes. With "
        f"`attach --steps` or diagnose() in both runs, or traces of both, the pace is known.{guess}"
    )


def explaining(*, differences: tuple[tuple[str, str, str], ...]) -> str:
    listed = "; ".join(f"{name} ({before} before, {after} after)" for name, before, after in differences)
    return f"This is not the same in both runs, and may explain a difference by itself: {listed}."


def warnings(*, said: tuple[str, ...]) -> str:
    return " ".join(said)


def other_work() -> str:
    return (
        "The job was not started by the same command: if that makes a step other work, by a larger batch for instance, "
        "the time of a step does not show which run is faster; samples per second do."
    )


def cannot_tell(*, allowed: str) -> str:
    return f"Whether a step takes longer than allowed cannot be determined; {allowed} is allowed."


def hidden_by_noise(*, most: str, floor: str, allowed: str) -> str:
    return (
        f"Whether a step takes longer than allowed cannot be determined: it may take {most} longer, {allowed} is "
        f"allowed, and less than {floor} cannot be distinguished from what these runs vary by. Longer runs on a quiet "
        "machine, or several pairs of runs in turn, decide it."
    )


def regression(*, least: str, most: str, allowed: str) -> str:
    return f"Regression: a step takes {least} to {most} longer, and {allowed} is allowed."


def unsure_regression(*, most: str, allowed: str) -> str:
    return f"No regression is shown: a step may take {most} longer, but that is not certain; {allowed} is allowed."


def no_regression(*, most: str | None, allowed: str) -> str:
    longer = "no longer" if most is None else f"at most {most} longer"
    return f"No regression: a step takes {longer}, and {allowed} is allowed."


def promise(*, fix: str, predicted: str, measured: str, outcome: str) -> str:
    return f'For "{fix}" the run before predicted {predicted}' + _PROMISES[outcome].format(measured)


def promise_unseen(*, fix: str, predicted: str) -> str:
    return (
        f'For "{fix}" the run before predicted {predicted}; whether that came true was not seen, since the pace cannot '
        "be compared."
    )


def promise_in_samples(*, fix: str, predicted: str) -> str:
    return (
        f'For "{fix}" the run before predicted {predicted} in samples per second. It makes a step other work: whether '
        "that came true does not show in the time of a step."
    )


def between(*, value: str, low: str, high: str) -> str:
    return f"{value} ({low} to {high})"


def from_to(*, low: str, high: str) -> str:
    return f"{low} to {high}"


def points(*, change: str) -> str:
    return f"{change} points"


def costs(*, answer: str) -> str:
    return _COSTS.get(answer, answer)


def name(*, what: str, label: str) -> str:
    return _NAMES.get(what, label)


def step_is(*, what: str) -> str:
    return _STEP_IS.get(what, what)


def nothing() -> str:
    return "none"


def unknown() -> str:
    return "unknown"


def no_cause() -> str:
    return "none named"


def time_before() -> str:
    return "Time per step, before"


def time_after() -> str:
    return "Time per step, after"


def pace_before() -> str:
    return "Steps per second, before"


def pace_after() -> str:
    return "Steps per second, after"


def speedup() -> str:
    return "Speed-up"


def noise_floor() -> str:
    return "Noise floor"


def time_goes(*, per_step: bool) -> str:
    return f"Where the time goes ({'time per step' if per_step else 'share of wall time'})"


def dots() -> str:
    return "Time per step in each stretch of the runs: a dot is a stretch, the line their mean."


def dots_in_words(*, name: str, mean: str, least: str, most: str) -> str:
    return f"{name}: {mean} in the mean, {least} to {most}"


def predicted_gain() -> str:
    return "The predicted gain"


def others() -> str:
    return "What else is not the same"


def footer() -> str:
    return "This page runs no script and loads nothing."


def runs() -> str:
    return "The two runs"


def cause() -> str:
    return "cause"


def before() -> str:
    return "before"


def after() -> str:
    return "after"


def change() -> str:
    return "change"


def answer() -> str:
    return "answer"


def file() -> str:
    return "File"


def kind() -> str:
    return "Kind"


def watched() -> str:
    return "Watched"


def steps() -> str:
    return "Steps"


def level() -> str:
    return "How it is known"


def first_cause() -> str:
    return "First cause"


def verdict() -> str:
    return "Verdict"
