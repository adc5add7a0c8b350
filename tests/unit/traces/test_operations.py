"""Tables of operations: two of real jobs whose slowdown is published, and made ones with a planted answer."""

from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from perfdoctor.__main__ import main
from perfdoctor.diagnosis import Diagnosis, Fix
from perfdoctor.errors import PerfDoctorError
from perfdoctor.operations.table import COLUMNS, build_graph, read_table
from perfdoctor.operations.what_if import WhatIf, ask_what_if
from tests.builders.traces import diagnose_table
from tests.files import real


def what_if(path: Path) -> WhatIf:
    table = read_table(path)
    return ask_what_if(table, build_graph(table))


def advised(diagnosis: Diagnosis) -> list[str]:
    assert diagnosis.verdict_finding is not None
    return [fix.title for fix in diagnosis.verdict_finding.fixes if isinstance(fix, Fix)]


# The published values: slowdown, and what of it fixing the worst rank and the worst stage explains.
@pytest.mark.parametrize(
    ("name", "slowdown", "rank", "kind", "culprit"),
    [("straggler-AR", 1.973, 1.002, "rank", 0), ("straggler-ST", 1.179, 0.031, "stage", 3)],
)
def test_slowdown_and_culprit_are_the_published_ones(
    name: str, slowdown: float, rank: float, kind: str, culprit: int
) -> None:
    pytest.importorskip("pyarrow", reason="reading Parquet needs pyarrow")
    found = what_if(real(f"{name}.parquet"))
    assert found.slowdown == pytest.approx(slowdown, rel=0.03)
    assert found.explained["rank"] == pytest.approx(rank, abs=0.03)
    assert (found.kind, found.culprit) == (kind, culprit)


def test_the_stage_with_too_much_work_is_told_in_the_report(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pyarrow", reason="reading Parquet needs pyarrow")
    assert main(["analyze", str(real("straggler-ST.parquet"))]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "Unequal ranks hold this job back" in printed
    assert "Stage 3 of the pipeline has more work than the others (ranks 6, 7)" in printed
    assert "Move layers away from pipeline stage 3" in printed


def test_the_slow_rank_is_the_straggler() -> None:
    pytest.importorskip("pyarrow", reason="reading Parquet needs pyarrow")
    diagnosis = diagnose_table(real("straggler-AR.parquet"))
    assert diagnosis.verdict.straggler_rank == 0
    assert diagnosis.verdict.cause == "gpu.compute"
    assert diagnosis.verdict.predicted_speedup == pytest.approx(1.973, rel=0.03)
    assert sum(line.share for line in diagnosis.breakdown) == pytest.approx(1.0, abs=0.001)


def data_parallel(works: np.ndarray) -> pd.DataFrame:
    """One stage: each rank computes for as long as told (steps by ranks), then all exchange gradients for 0.3 s."""
    rows = []
    for step, by_rank in enumerate(works):
        meet = by_rank.max()
        for rank, work in enumerate(by_rank):
            spans = [
                ("forward-compute", 0.0, work / 2),
                ("backward-compute", work / 2, work),
                ("grads-reduce-scatter", work, meet + 0.3),
                ("optimizer", meet + 0.3, meet + 0.5),
            ]
            rows += [(rank, 0, rank, step, kind, begin, end - begin, 0) for kind, begin, end in spans]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def written(works: list[list[float]], path: Path) -> Path:
    data_parallel(np.array(works)).to_csv(path, index=False)
    return path


def test_one_slow_rank(tmp_path: Path) -> None:
    path = written([[4.0, 4.0, 12.0, 4.0]] * 5, tmp_path / "jobs.csv")
    found = what_if(path)
    assert found.slowdown == pytest.approx(12.5 / 6.5)  # the mean is 6, and 0.5 for the rest
    assert (found.kind, found.culprit) == ("rank", 2)
    diagnosis = diagnose_table(path)
    assert diagnosis.verdict.straggler_rank == 2
    waits = [rank["waits_for"].get("2", 0.0) for rank in diagnosis.ranks]
    assert waits == pytest.approx([8 / 12.5, 8 / 12.5, 0.0, 8 / 12.5], abs=0.001)


def pipeline(works: list[float], path: Path) -> Path:
    """Stages of two ranks each, which compute for as long as told for each of eight batches, and hand it on."""
    rows: list[tuple[int, str, float, float, int]] = []
    free = [0.0 for _ in works]
    for batch, (stage, work) in product(range(8), enumerate(works)):
        if stage:
            met = max(free[stage - 1 : stage + 1]) + 0.1
            for one, kind in ((stage - 1, "forward-send"), (stage, "forward-recv")):
                rows.append((one, kind, free[one], met - free[one], batch))
                free[one] = met
        rows.append((stage, "forward-compute", free[stage], work, batch))
        free[stage] += work
    met = max(free) + 0.1
    rows += [(stage, "optimizer-clip-main-grad", begin, met - begin, 0) for stage, begin in enumerate(free)]
    places = product(range(2), range(5))
    table = [(of, row[0], 2 * row[0] + of, step, *row[1:]) for (of, step), row in product(places, rows)]
    pd.DataFrame(table, columns=list(COLUMNS)).to_csv(path, index=False)
    return path


def test_a_stage_with_too_much_work(tmp_path: Path) -> None:
    path = pipeline([1.0, 1.0, 4.0], tmp_path / "stages.csv")
    found = what_if(path)
    assert found.slowdown == pytest.approx(35.0 / 21.7)  # the mean is 2, and each of nine exchanges takes 0.1
    assert (found.kind, found.culprit) == ("stage", 2)
    diagnosis = diagnose_table(path)
    assert diagnosis.verdict.straggler_rank is None
    assert "Stage 2 of the pipeline has more work than the others (ranks 4, 5)" in str(diagnosis.verdict.summary)
    assert advised(diagnosis) == ["Move layers away from pipeline stage 2"]


def test_another_rank_in_each_step(tmp_path: Path) -> None:
    works = [[10.0 if (rank + step) % 4 == 0 else 4.0 for rank in range(4)] for step in range(8)]
    path = written(works, tmp_path / "moving.csv")
    found = what_if(path)
    assert found.slowdown == pytest.approx(10.5 / 6.0)
    assert (found.kind, found.culprit) == ("changing", None)
    diagnosis = diagnose_table(path)
    assert (diagnosis.verdict.straggler_rank, diagnosis.verdict.predicted_speedup) == (None, pytest.approx(10.5 / 6.0))
    assert advised(diagnosis) == ["Give all ranks batches of the same cost"]


def test_equal_ranks_are_not_called_ill(tmp_path: Path) -> None:
    path = written([[5.0, 5.0, 5.01, 4.99]] * 5, tmp_path / "equal.csv")
    assert what_if(path).kind == "none"
    verdict = diagnose_table(path).verdict
    assert (verdict.cause, verdict.straggler_rank, verdict.predicted_speedup) == ("gpu.compute", None, 1.0)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b\n1,2\n", "has no column"),
        ("dp_rank,stage,rank,step,optype,start_ts,duration,seq_id\n0,0,0,1,dance,0.0,1.0,0\n", "not known: dance"),
        ("dp_rank,stage,rank,step,optype,start_ts,duration,seq_id\n0,0,0,1,forward-recv,0.0,1.0,0\n", "no other end"),
        ("dp_rank,stage,rank,step,optype,start_ts,duration,seq_id\n", "holds no rows"),
        ("", "cannot be read as a table"),
    ],
)
def test_what_is_no_such_table_is_refused(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "other.csv"
    path.write_text(text)
    with pytest.raises(PerfDoctorError, match=words):
        diagnose_table(path)
