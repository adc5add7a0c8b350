"""Jobs that hang, and one that only steps slowly, watched from outside as users do it."""

from pathlib import Path

from tests.processes.attaching import is_a_diagnosis, perfdoctor
from tests.processes.stuck import planted


def test_a_rank_that_waits_for_a_lock_is_found_by_way_of_the_one_that_waits_for_it(tmp_path: Path) -> None:
    with planted("lock_order") as pid:
        answer = perfdoctor("attach", pid, "--duration", "7", "--json", tmp_path / "a.json", "--lang", "en")
    assert answer.status == 0, answer.err
    assert answer.out.startswith("The job is stuck: "), answer.out
    is_a_diagnosis(answer.told)
    stuck = answer.told["stuck"]
    assert (stuck["kind"], stuck["rank"]) == ("lock", 1)
    assert "lock_order" in stuck["chain"][0]["line"]
    assert "lock_order.<locals>.other" in stuck["chain"][0]["threads"][0]
    assert [halt["collective"] for halt in stuck["waiting"]] == ["all_reduce"]
    assert answer.told["verdict"]["straggler_rank"] == 1
    assert stuck["summary"] == answer.told["verdict"]["summary"]


def test_a_slow_download_in_one_rank_is_no_hang(tmp_path: Path) -> None:
    with planted("slow_download") as pid:
        answer = perfdoctor("attach", pid, "--duration", "7", "--json", tmp_path / "a.json")
    assert answer.told["stuck"] is None, answer.out


def test_what_moves_beside_a_rank_that_waits_hides_no_hang(tmp_path: Path) -> None:
    with planted("lock_beside_monitors") as pid:
        answer = perfdoctor("attach", pid, "--duration", "7", "--json", tmp_path / "a.json")
    stuck = answer.told["stuck"]
    assert stuck is not None, answer.out
    assert (stuck["kind"], stuck["rank"]) == ("lock", 1)


def test_what_a_rank_has_started_ends_no_wait_for_a_thread_of_its_own(tmp_path: Path) -> None:
    with planted("queue_beside_monitor") as pid:
        answer = perfdoctor("attach", pid, "--duration", "7", "--json", tmp_path / "a.json")
    stuck = answer.told["stuck"]
    assert stuck is not None, answer.out
    assert (stuck["kind"], stuck["rank"]) == ("lock", 1)
    assert "queue_beside_monitor" in stuck["chain"][0]["line"]


def test_of_ranks_that_were_all_stopped_none_is_blamed_alone(tmp_path: Path) -> None:
    with planted("all_stopped") as pid:
        answer = perfdoctor("attach", pid, "--duration", "4", "--json", tmp_path / "a.json", "--lang", "en")
    stuck = answer.told["stuck"]
    assert stuck is not None, answer.out
    assert (stuck["kind"], stuck["rank"], stuck["ranks"]) == ("stopped", None, [0, 1])
    pids = " ".join(str(halt["pid"]) for halt in stuck["chain"])
    assert f"kill -CONT {pids}" in stuck["next_move"]
