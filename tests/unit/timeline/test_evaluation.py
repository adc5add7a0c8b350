"""Passes without gradients are told from those of training by what calls them, and by what does not follow them."""

import itertools

from perfdoctor.attribution.attribute import attribute
from perfdoctor.causes import EVALUATION, INPUT_PREPROCESSING
from perfdoctor.knowledge.frames import Frame
from perfdoctor.recording.own_source import SourceRounds
from perfdoctor.timeline.job import JobTimeline
from tests.builders.jobs import MODULE, process, stacks, thread, timeline

TORCH = "/v/lib/python3.11/site-packages/torch"
BACKWARD = Frame(f"{TORCH}/_tensor.py", "Tensor.backward", 623)
LAYER = Frame(f"{TORCH}/nn/modules/linear.py", "Linear.forward", 125)
NORM = Frame(f"{TORCH}/nn/modules/normalization.py", "LayerNorm.forward", 220)
PARAMETERS = Frame(f"{TORCH}/nn/modules/module.py", "Module.named_parameters", 2700)
LIGHTNING = Frame("/v/lib/python3.11/site-packages/lightning/pytorch/loops/evaluation_loop.py", "run", 150)
GENERATION = Frame("/v/lib/python3.11/site-packages/transformers/generation/utils.py", "sample", 900)
SAVE = Frame(f"{TORCH}/serialization.py", "save", 900)


def main(line: int) -> Frame:
    return Frame("/home/me/train.py", "main", line)


def called(function: str, line: int) -> Frame:
    return Frame("/home/me/train.py", function, line)


LOADER = Frame(f"{TORCH}/utils/data/dataloader.py", "_BaseDataLoaderIter.__next__", 733)
CHECK = Frame("/home/me/train.py", "check", 5)
TRAINING = [(main(20), MODULE, LAYER), (main(21), BACKWARD)]


def job(*turns: tuple[Frame, ...]) -> JobTimeline:
    return timeline([*process(10), *thread(10, 10, run=1.0), *stacks(10, *turns, ident=1)])


def share(*turns: tuple[Frame, ...]) -> float:
    """The share of evaluation in a job that is in these stacks by turns."""
    (account,) = attribute(job(*turns))
    assert abs(account.causes()[EVALUATION] - account.phases["evaluation"]) < 1e-6 * account.seconds
    return account.causes()[EVALUATION] / account.seconds


def test_a_pass_below_the_lines_that_train_is_an_evaluation() -> None:
    below = [(main(23), CHECK, MODULE, LAYER), (main(23), CHECK)]
    assert 0.4 < share(*TRAINING, *below) < 0.6
    above = [(main(19), CHECK, MODULE, LAYER), (main(19), CHECK)]
    assert share(*TRAINING, *above) == 0


def test_a_pass_in_some_rounds_only_is_an_evaluation_above_the_lines_that_train_too() -> None:
    turns = [*TRAINING, (main(19), CHECK, MODULE, LAYER), (main(19), CHECK)]

    def told(first: int, last: int) -> float:
        rounds = SourceRounds("/home/me/train.py", first, last, 17, 30, "step % 20 == 0")
        (account,) = attribute(timeline([*process(10), *thread(10, 10, run=1.0), *stacks(10, *turns, ident=1), rounds]))
        return account.causes()[EVALUATION] / account.seconds

    assert 0.4 < told(18, 19) < 0.6
    assert told(18, 21) == 0, "it trains in these rounds"
    assert told(18, 18) == 0


def test_the_batches_of_an_evaluation_belong_to_it_and_keep_their_cause() -> None:
    fetching = Frame("/home/me/data.py", "Digits.__getitem__", 9)
    turns = [*TRAINING, (main(23), CHECK, MODULE, LAYER), (main(23), CHECK, LOADER, fetching)]
    (account,) = attribute(job(*turns, (main(19), LOADER, fetching)))
    assert 0.3 < account.activities.seconds["evaluating"] / account.seconds < 0.5
    assert 0.15 < account.causes()[EVALUATION] / account.seconds < 0.25
    assert 0.3 < account.causes()[INPUT_PREPROCESSING] / account.seconds < 0.5


def test_going_over_parameters_is_no_pass_and_saving_keeps_its_cause() -> None:
    assert share(*TRAINING, (main(23), CHECK, PARAMETERS)) == 0
    (account,) = attribute(job(*TRAINING, (main(23), CHECK, MODULE, LAYER), (main(23), CHECK, SAVE)))
    assert account.phases["saving"] > 0


def test_a_loop_in_another_order_than_its_lines_trains_all_the_same() -> None:
    """It calls the model for the next step behind the backward pass, and nowhere else."""
    assert share((main(21), BACKWARD), (main(22), MODULE, LAYER)) == 0


def test_what_a_librarys_loop_calls_is_an_evaluation_wherever_it_stands() -> None:
    assert 0.2 < share(*TRAINING, (main(10), LIGHTNING, MODULE, LAYER)) < 0.45


def test_many_passes_between_two_samples_of_training_are_an_evaluation() -> None:
    """At the very lines at which the loop trains: ``torch.set_grad_enabled(part == "train")``."""
    passes = [(main(20), MODULE, layer) for layer in (LAYER, NORM)]
    evaluation = list(itertools.islice(itertools.cycle(passes), 40))
    assert 0.5 < share(*TRAINING * 10, *evaluation) < 0.75
    usual = [(main(20), MODULE, layer) for layer in (LAYER, NORM)] * 2
    assert share(*[*usual, (main(21), BACKWARD)]) == 0


def test_the_passes_of_steps_that_take_seconds_are_none() -> None:
    """Each step is seen at many lines of its forward pass, and its backward pass again and again with none between."""
    passes = [(main(20), MODULE, layer) for layer in (LAYER, NORM)]
    training = [(main(21), BACKWARD), (main(21), BACKWARD, PARAMETERS)] * 3
    step = [*passes * 6, *training]
    assert share((main(19), LOADER), *step, *step, (main(18), LOADER), *step, *step) == 0
    assert 0.3 < share(*step * 5, *passes * 30, *step * 5) < 0.6


def test_passes_at_lines_that_only_act_are_none() -> None:
    """A rollout before each block of training, by a method that training calls too."""
    acts = [(main(11), called("act", 5), MODULE, layer) for layer in (LAYER, NORM)] * 20
    update = [(main(20), called("act", 5), MODULE, LAYER), (main(21), BACKWARD)] * 10
    assert share(*(acts + update) * 3) == 0
    same_loop = [(main(11), called("epoch", 5), MODULE, layer) for layer in (LAYER, NORM)] * 20
    epoch = [(main(20), called("epoch", 5), MODULE, LAYER), (main(20), called("epoch", 6), BACKWARD)] * 10
    assert share(*(same_loop + epoch) * 3) > 0.5


SPAWN = Frame("/v/lib/python3.11/site-packages/torch/multiprocessing/spawn.py", "_wrap", 90)


def test_it_does_not_matter_what_of_torchs_started_the_job() -> None:
    acts = [(SPAWN, main(11), MODULE, layer) for layer in (LAYER, NORM)] * 20
    update = [(SPAWN, main(20), MODULE, LAYER), (SPAWN, main(21), BACKWARD)] * 10
    assert share(*(acts + update) * 3) == 0


def test_an_evaluation_that_the_watch_cuts_off_hides_no_other() -> None:
    fetched = [(main(20), LOADER), *TRAINING] * 10
    check = [(main(11), called("check", 4), LOADER)]
    check += [(main(11), called("check", 5), MODULE, layer) for layer in (LAYER, NORM)] * 20
    assert share(*check[-7:], *fetched, *check, *fetched, *check[:7]) > 0.3


def test_passes_over_batches_that_no_training_fetches_are_an_evaluation_above_it_too() -> None:
    fetched = [(main(20), LOADER), *TRAINING] * 10
    passes = [(main(11), called("check", 5), MODULE, layer) for layer in (LAYER, NORM)] * 20
    assert share(*passes, *fetched) == 0
    assert share((main(11), called("check", 4), LOADER), *passes, *fetched) > 0.4
    generated = [(*stack[:2], GENERATION, MODULE, LAYER) for stack in passes]
    assert share((main(11), called("check", 4), LOADER), *generated, *fetched) == 0


# A stage of whole steps, called at a line of a loop.
STEPS = [
    (main(30), called("stage", 41), LOADER),
    (main(30), called("stage", 42), MODULE, LAYER),
    (main(30), called("stage", 43), BACKWARD),
]


def test_a_loop_over_batches_beside_whole_steps_is_an_evaluation_above_them_too() -> None:
    scoring = [(main(20), called("score", 12), LOADER), (main(20), called("score", 13), MODULE, LAYER)]
    assert 0.15 < share(*STEPS, *scoring) < 0.25
    # Rollouts take no batches from a loader, and training needs them.
    assert share(*STEPS, (main(20), called("act", 13), MODULE, LAYER)) == 0


def test_a_helper_that_fetches_a_batch_and_calls_the_model_is_part_of_the_step() -> None:
    forward = [(main(20), called("forward_step", 12), LOADER), (main(20), called("forward_step", 13), MODULE, LAYER)]
    assert share(*forward, (main(21), BACKWARD)) == 0
    recomputed = (main(21), BACKWARD, called("block", 60), MODULE, LAYER)
    assert share(*forward, (main(21), BACKWARD), recomputed) == 0
    semi_supervised = [(main(22), MODULE, LAYER), (main(23), BACKWARD)]
    assert share(*forward, *semi_supervised) == 0


def test_what_others_do_meanwhile_is_not_the_evaluations() -> None:
    """A trainer that waits for a CPU in it waits for that."""
    turns = [*TRAINING, (main(23), CHECK, MODULE, LAYER), (main(23), CHECK)]
    queueing = timeline([
        *process(10), *thread(10, 10, run=0.5, delay=0.5), *stacks(10, *turns),
    ])  # fmt: skip
    (account,) = attribute(queueing)
    assert account.phases["evaluation"] > 0.4 * account.seconds
    assert account.causes()[EVALUATION] < account.phases["evaluation"]
