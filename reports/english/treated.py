"""What a report of a treatment says: what was gained, how that was measured, and what its parts are called."""

# By whether changes are made between steps: what is made with and without them, and what gives more time.
_NAMES = {False: "run", True: "block"}
_MORE = {False: "--minutes", True: "treat_minutes"}


def faster(*, factor: str, title: str) -> str:
    return f"{factor} faster, as measured: {title}"


def nothing_tried() -> str:
    return "Nothing was tried"


def not_confirmed(*, factor: str, title: str) -> str:
    return f"{factor} faster when it was tried, but not confirmed: {title}"


def nothing_helps() -> str:
    return "Nothing that was tried makes this job faster"


def nothing_clear() -> str:
    return "No change is clearly faster"


def interval(*, low: str, high: str, runs: int, controls: int, training: str, inside: bool) -> str:
    made = _runs(runs, inside)
    return (
        f"Between {low} and {high} with 97% confidence, by {made} that {'was' if runs == 1 else 'were'} made for this "
        f"alone and {controls} without it; {training}."
    )


def nothing_to_try(*, inside: bool) -> str:
    if inside:
        return "Nothing of what can be changed between steps helps against what takes this job's time."
    return "Nothing of what can be tried without touching the job's files helps against what takes its time."


def unclear(*, inside: bool) -> str:
    return (
        f"Further {_NAMES[inside]}s were not clear, or there was no time for them. More minutes help: {_MORE[inside]}."
    )


def too_wide(*, inside: bool) -> str:
    return f"Some intervals are too wide. More minutes help ({_MORE[inside]}), and a machine without neighbours."


def code_is_next() -> str:
    return "The findings of the diagnosis have changes to the code itself."


def interrupted(*, inside: bool) -> str:
    if inside:
        return "The training made no more steps before all was tried."
    return "It was interrupted before all was tried."


def bit_identical() -> str:
    return "the losses are the same to the last bit"


def within_noise() -> str:
    return "the losses are the same within their noise"


def other_losses() -> str:
    return "the losses differ"


def no_losses() -> str:
    return "no losses were seen"


def untouched() -> str:
    return "what is computed stays the same"


def rounded() -> str:
    return "results may be rounded differently"


def not_asked(*, titles: tuple[str, ...]) -> str:
    return f'Tried with treat="within noise" only, since results may be rounded differently: {"; ".join(titles)}.'


def by_hand(*, titles: tuple[str, ...]) -> str:
    return f"Advised as well, and made in your own code: {'; '.join(titles)}."


def outcome(*, outcome: str) -> str:
    return outcome


def at_most(*, factor: str) -> str:
    return f"at most {factor}".rstrip()


def first_step_after(*, time: str) -> str:
    return f"The first step comes after {time}."


def nothing_to_keep() -> str:
    return "Shows what could be gained; nothing to keep."


def runs(*, factor: str, runs: int, inside: bool) -> str:
    return f"{factor} ({_runs(runs, inside)})"


def runs_between(*, factor: str, low: str, high: str, runs: int, inside: bool) -> str:
    return f"{factor} ({low} to {high}, {_runs(runs, inside)})"


def _runs(runs: int, inside: bool) -> str:
    return f"{runs} {_NAMES[inside]}{'' if runs == 1 else 's'}"


def together(*, titles: tuple[str, ...]) -> str:
    return " and ".join(titles)


def as_it_is() -> str:
    return "The job as it is"


def sentence(*, text: str) -> str:
    return f"{text}."


def diagnosed(*, headline: str) -> str:
    return f"Diagnosis of the job as it is: {headline}"


def tried() -> str:
    return "What was tried"


def combined() -> str:
    return "Together, beside the best before"


def no_time_for(*, titles: tuple[str, ...], inside: bool) -> str:
    return f"No time for: {'; '.join(titles)}. More minutes help: {_MORE[inside]}."


def permanent() -> str:
    return "To make it permanent"


def patch() -> str:
    return "As a patch"


def diagnosis() -> str:
    return "The diagnosis"


def cost() -> str:
    return "What this treatment cost"


def change() -> str:
    return "change"


def predicted() -> str:
    return "predicted"


def measured() -> str:
    return "measured"


def verdict() -> str:
    return "verdict"


def step_is(*, time: str, what: str) -> str:
    return f"{time} ({what})"


def control_runs(*, inside: bool) -> str:
    return f"{_NAMES[inside].capitalize()}s without a change"


def they_differ() -> str:
    return "They differ by"


def deviation(*, spread: str) -> str:
    return f"{spread} (standard deviation)"


def steps_of_run(*, inside: bool) -> str:
    return "Steps of each block, at least" if inside else "Steps of each run"


def after_warmup(*, steps: str, warmup: str) -> str:
    return f"{steps}, after {warmup} that are left out"


def first_step() -> str:
    return "First step after"


def memory() -> str:
    return "Memory"


def gpu_memory() -> str:
    return "GPU memory"


def losses() -> str:
    return "Losses of these runs"


def deterministic(*, same: bool) -> str:
    return "the same to the last bit" if same else "differ"


def runs_of_job(*, inside: bool) -> str:
    return "Blocks of steps" if inside else "Runs of the job"


def time() -> str:
    return "Time"


def saves_aside() -> str:
    return "Saves taken aside"
