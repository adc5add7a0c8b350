"""What else a finding could have been."""

from perfdoctor.causes import CAUSES
from perfdoctor.diagnosis import Finding, LookAlike, NotExamined
from perfdoctor.knowledge.look_alikes import LOOK_ALIKES, SEEN_BY
from perfdoctor.metrics.names import METRICS, evidence
from perfdoctor.rules.case import Case, Trainer
from perfdoctor.rules.look_alikes import with_look_alikes

INPUT, CONTENTION, LOCK = "cpu.input_preprocessing", "cpu.contention", "cpu.lock_contention"


def look_alikes(cause: str, *unseen: NotExamined, ranks: int = 1, **numbers: float) -> dict[str, LookAlike]:
    trainers = tuple(Trainer(rank, 100 + rank, {}, {}, {}, (), 0) for rank in range(ranks))
    shares = {cause: 0.6, CONTENTION: 0.06, "cpu.model_compute": 0.34}
    measured = {name: evidence(name, value) for name, value in numbers.items()}
    case = Case(shares, trainers, {}, measured, {"on_gpu": "yes"} if cause.startswith("gpu.") else {})
    (found,) = with_look_alikes([Finding(cause, 0.6, "high", 2.0, "")], case, unseen)
    return {one.cause: one for one in found.look_alikes}


def test_the_table_names_causes_and_numbers_that_there_are() -> None:
    rows = [alike for alikes in LOOK_ALIKES.values() for alike in alikes]
    assert {*LOOK_ALIKES, *SEEN_BY, *(alike.cause for alike in rows)} <= CAUSES.keys()
    assert {number for alike in rows for number in alike.numbers} <= METRICS.keys()
    assert not [cause for cause, alikes in LOOK_ALIKES.items() if cause in {alike.cause for alike in alikes}]


def test_what_takes_next_to_no_time_is_ruled_out_by_its_share_and_its_numbers() -> None:
    disk = look_alikes(INPUT, read_from_storage=0.0, page_cache=1.0, major_faults=0.0)["io.storage_read"]
    assert disk.ruled_out
    assert disk.share == 0.0
    assert [item.value for item in disk.evidence] == [0.0, 1.0], "a zero that was measured rules out; two suffice"


def test_what_is_there_as_well_is_not_ruled_out() -> None:
    also = look_alikes(INPUT)[CONTENTION]
    assert (also.share, also.ruled_out, also.evidence) == (0.06, False, ())


def test_what_could_not_be_seen_is_neither() -> None:
    blind = NotExamined("stacks", "No right.", "Be root.")
    assert look_alikes(INPUT, blind)[LOCK] == LookAlike(LOCK, None, ruled_out=False)
    brief = NotExamined("stacks", "Some are missing.", "Watch longer.", too_brief=True)
    assert look_alikes(INPUT, brief)[LOCK].ruled_out


def test_what_only_numbers_of_a_gpu_show_is_not_ruled_out_without_them() -> None:
    memory, contention = "gpu.memory_bandwidth", "gpu.contention"
    found = look_alikes("gpu.compute", gpu_dram=0.2)
    assert (found[memory].share, found[memory].ruled_out) == (0.0, True)
    assert (found[contention].share, found[contention].ruled_out) == (None, False)


def test_a_job_has_no_look_alikes_of_what_it_lacks() -> None:
    assert not [cause for cause in look_alikes(INPUT) if cause.startswith(("gpu.", "communication."))]
    assert "communication.bandwidth" in look_alikes("communication.latency", ranks=2)
