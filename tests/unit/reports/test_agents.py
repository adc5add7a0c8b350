"""Answers to agents: the important stays in, the rest goes by whole items, and nothing hostile gets through."""

from dataclasses import replace

from perfdoctor.diagnosis import CauseShare, Evidence, Finding, Fix, NotExamined
from perfdoctor.reports.agents import tell, tell_finding
from perfdoctor.reports.fitting import ROOM, Section, fitted, short, size_of_values, trimmed
from tests.builders import diagnoses
from tests.figures import size

LONG = "/data/" + "x" * 10_000 + "/train.py:41 main"


def test_sections_end_where_there_is_no_room_and_say_so() -> None:
    sections = (Section("Evidence:", ("- one", "- two", "- three"), "- more"), Section("Then:", ("- four",), "- etc."))
    assert fitted(sections, 1000) == "Evidence:\n- one\n- two\n- three\nThen:\n- four"
    assert fitted(sections, 35) == "Evidence:\n- one\n- more\n- etc."
    assert fitted((Section("Empty:", ()),), 100) == ""


def test_text_is_cut_behind_a_word() -> None:
    assert short("a b\nc") == "a b c"
    assert short("one two three four", 17) == "one two […]"
    assert short("é" * 100, 21) == "é" * 7 + " […]"
    assert len(short(LONG).encode()) <= 600


def test_the_longest_list_of_values_gives_way() -> None:
    values = {"name": "d1", "long": list(range(1000)), "brief": ["kept"]}
    assert size_of_values(trimmed(values, 200)) <= 200
    assert values["brief"] == ["kept"]
    assert values["long"][:5] == [0, 1, 2, 3, 4]


def test_a_diagnosis_says_what_holds_the_job_back_and_what_to_do() -> None:
    told = tell(diagnoses.input_bound(), "d7")
    lines = told.text.split("\n")
    assert (
        lines[0] == "CPU bottleneck: preparing the input on the CPU, 62% of the time, up to 2.3 times as fast if fixed"
    )
    assert lines[lines.index("Do this first:") + 1] == "- Raise the number of workers from 2 to 7"
    assert "    loader = DataLoader(\n        dataset,\n        num_workers=7,  # was 2\n    )" in told.text
    assert "- Workers on a CPU while the trainer waits: 97% (threads)" in lines
    assert "- Decode smaller images, or decode them once" in lines
    assert lines[-1].startswith("This diagnosis is d7: ")
    assert told.values["verdict"]["share"] == 0.62
    assert told.values["findings"][1]["cause"] == "io.log_write"


def test_where_no_bottleneck_is_named_the_next_move_comes_first() -> None:
    told = tell(diagnoses.undecided(), "d1", "Attach again while the job trains.")
    assert told.values["verdict"]["bottleneck"] is None
    assert "\nNext move:\nAttach again while the job trains.\n" in told.text
    assert "Do this first" not in told.text


def test_a_finding_is_told_whole() -> None:
    told = tell_finding(diagnoses.input_bound(), "d1", 1)
    assert "It would be wrong if:" in told.text
    assert "    image.draft('RGB', (224, 224))" in told.text
    assert told.values["evidence"][3] == {
        "name": "most frequent line of the workers",
        "value": "dataset.py:41 __getitem__",
        "unit": "",
        "probe": "stacks",
    }


def test_whatever_a_diagnosis_holds_the_answer_keeps_its_bounds_and_its_verdict() -> None:
    base = diagnoses.input_bound()
    hostile = [LONG, diagnoses.TERMINAL_ATTACK, diagnoses.ATTACK, "字" * 5000]
    evidence = tuple(Evidence(name, value, LONG, LONG) for name in hostile for value in (*hostile, 1e300, float("nan")))
    fixes = tuple(Fix(title, LONG, f"{LONG}\n" * 50) for title in hostile)
    finding = Finding("io.swap", 0.5, LONG, 2.0, LONG, evidence, fixes, LONG, tuple(range(5000)))
    diagnosis = replace(
        base,
        verdict=replace(base.verdict, summary=LONG, level=LONG),
        breakdown=(CauseShare("io.swap", 0.001),) * 1000,
        findings=(finding,) * 20,
        not_examined=(NotExamined(LONG, LONG, LONG),) * 20,
    )
    for told in tell(diagnosis, "d1"), tell_finding(diagnosis, "d1", 1):
        assert size(told.text, told.values) <= ROOM
        assert "io.swap" in told.text or "preparing the input" in told.text
        assert not set(told.text) & set("\x1b\x07\x9b\u202e")
        assert "[…]" in told.text
        assert told.values
    assert tell(diagnosis, "d1").text.startswith("CPU bottleneck: preparing the input on the CPU, 62% of the time")
