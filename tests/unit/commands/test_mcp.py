"""The tools of `perfdoctor mcp`, asked through the SDK's client."""

import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from mcp import Client
from mcp_types import CallToolResult

from perfdoctor.__main__ import main
from perfdoctor.causes import CAUSES
from perfdoctor.commands.mcp.calls import Report
from perfdoctor.commands.mcp.server import KEPT, TOOLS, AgentSession
from perfdoctor.commands.run_paths import Source
from perfdoctor.diagnosis import NotExamined
from perfdoctor.reports import json as json_report
from tests.builders import diagnoses
from tests.processes.agents import ask, text_of, values_of, with_agent
from tests.recordings import corpus, packing

NOBODY = 2**22 + 1  # pid_max is 2**22 at most


def test_every_tool_says_what_it_does_takes_and_answers_and_that_it_only_reads() -> None:
    told = with_agent(lambda client: client.list_tools()).tools
    assert [tool.name for tool in told] == [tool.__name__ for tool in TOOLS]
    for tool in told:
        assert tool.description
        assert tool.annotations is not None
        assert tool.annotations.read_only_hint
        taken = tool.input_schema["properties"]
        assert "context" not in taken
        assert [name for name, one in taken.items() if not one.get("description")] == []
    assert [tool.name for tool in told if tool.output_schema is None] == []


@pytest.mark.parametrize("path", ["/nowhere/job.perfdoctor", "", "a\0b", "~nobody-of-that-name/x", "/dev/null"])
def test_a_path_that_is_none_is_an_error_with_the_next_move(path: str) -> None:
    refused = ask("analyze", paths=[path])
    assert refused.is_error
    values = values_of(refused)
    assert values.keys() == {"error", "hint"}
    assert values["hint"]
    assert text_of(refused) == f"{values['error']}\n{values['hint']}"


def test_a_process_that_is_not_there_is_an_error_with_the_next_move() -> None:
    for tool in "attach", "check":
        refused = ask(tool, pid=NOBODY)
        assert refused.is_error
        assert values_of(refused)["error"] == f"There is no process {NOBODY}."


@pytest.mark.parametrize("tool", ["analyze", "compare", "read_finding"])
@pytest.mark.parametrize(
    "content", [b"hello", b"<html>", b"\x89PNG\r\n\x1a\n\0", b"SQLite format 3\0", b'{"a": 1}', b""]
)
def test_of_a_file_that_is_none_of_them_it_is_said_what_is_taken_and_what_it_looks_like(
    tool: str, content: bytes, tmp_path: Path
) -> None:
    file = tmp_path / "some.file"
    file.write_bytes(content)
    path = str(file)
    taken = {
        "analyze": {"paths": [path]},
        "compare": {"before": path, "after": path},
        "read_finding": {"diagnosis": path},
    }
    said = values_of(ask(tool, **taken[tool]))
    assert re.search("neither a recording nor a JSON report nor a profiler trace: it is |is empty", said["error"])
    assert "a recording, a JSON report, or a trace" in said["hint"]


def test_a_diagnosis_that_is_not_kept_is_told_from_a_file_and_those_that_are_kept_are_named(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    file.write_text(json_report.render(diagnoses.input_bound()))

    async def talk(client: Client) -> list[CallToolResult]:
        calls = ("read_finding", {"diagnosis": "d1"}), ("compare", {"before": "d1", "after": "d2"})
        refused = [await client.call_tool(*call) for call in calls]
        for _ in range(2):
            await client.call_tool("analyze", {"paths": [str(file)]})
        return [*refused, await client.call_tool("read_finding", {"diagnosis": "d3"})]

    *early, late = map(values_of, with_agent(talk))
    for values in early:
        assert values["error"].startswith("There is no diagnosis 'd1', and no file of that name; ")
        assert values["error"].endswith("none has been made yet.")
        assert "`attach` and `analyze` make diagnoses" in values["hint"]
    assert late["error"].endswith("those kept are d1, d2.")


def test_what_agents_are_told_to_do_next_is_done_with_tools(tmp_path: Path) -> None:
    """Whatever stops a call: no hint names a command of perfdoctor's, nor one that does what a tool does."""
    damaged, recording = tmp_path / "damaged.json", tmp_path / "a.perfdoctor"
    damaged.write_text('{"schema": 1, "perfdoctor": "0", "verdict": 3, "breakdown": []}')
    packing.unpack(corpus.FOLDER / f"sound_training{corpus.SUFFIX}", recording)
    cut = tmp_path / "cut.perfdoctor"
    cut.write_bytes(recording.read_bytes()[:50_000])
    empty, trace = tmp_path / "empty", tmp_path / "trace.json"
    empty.mkdir()
    trace.write_text('{"traceEvents": []}')
    with subprocess.Popen(["sleep", "600"]) as process, ThreadPoolExecutor(1) as threads:
        thread = threads.submit(threading.get_native_id).result()
        try:
            refused = [
                *(ask("attach", pid=pid) for pid in (NOBODY, process.pid, thread, 2)),
                *(ask("analyze", paths=[str(path)]) for path in (damaged, cut, empty, trace, tmp_path / "none")),
                ask("analyze", paths=[str(recording), str(trace)]),
                ask("compare", before=str(damaged), after=str(recording)),
                ask("explain", cause="nothing"),
            ]
        finally:
            process.kill()
    for one in refused:
        values = values_of(one)
        assert one.is_error
        assert values["hint"], values
        assert not re.search(r"perfdoctor [a-z]+|--\w+|ps -ef", values["hint"]), values


def test_a_process_without_torch_can_be_checked_and_not_attached_to() -> None:
    with subprocess.Popen(["sleep", "600"]) as process:
        try:
            checked, refused = ask("check", pid=process.pid), ask("attach", pid=process.pid)
        finally:
            process.kill()
    assert not checked.is_error
    assert values_of(checked)["attachable"] is False
    assert "cannot be attached to" in text_of(checked)
    assert refused.is_error
    assert "PyTorch" in values_of(refused)["error"]


def test_the_host_can_be_checked() -> None:
    values = values_of(ask("check"))
    assert values["attachable"] is None
    assert {"threads", "stacks"} <= {probe["probe"] for probe in values["probes"]}


@pytest.mark.parametrize("arguments", [{"pid": 0}, {"pid": 1, "seconds": 0}, {"pid": 1, "seconds": 1e6}, {}])
def test_arguments_out_of_bounds_are_refused(arguments: dict[str, float]) -> None:
    assert ask("attach", **arguments).is_error


@pytest.mark.parametrize(
    "text", ['{"schema": 1, "perfdoctor": "0", "verdict": 3, "breakdown": []}', '{"traceEvents": []}', "{", "\x00"]
)
def test_damaged_files_are_errors_with_the_next_move(text: str, tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    file.write_text(text)
    refused = ask("analyze", paths=[str(file)])
    assert refused.is_error
    assert values_of(refused)["hint"]


def test_findings_are_read_from_a_file_by_its_path(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    file.write_text(json_report.render(diagnoses.input_bound()))
    told = values_of(ask("read_finding", diagnosis=str(file), number=2))
    assert (told["diagnosis"], told["cause"]) == ("d1", "io.log_write")
    refused = ask("read_finding", diagnosis=str(file), number=9)
    assert "no number 9" in values_of(refused)["error"]


def test_runs_are_compared_by_name_and_by_path(tmp_path: Path) -> None:
    before, after = tmp_path / "before.json", tmp_path / "after.json"
    before.write_text(json_report.render(diagnoses.input_bound()))
    after.write_text(json_report.render(diagnoses.sound()))

    async def talk(client: Client) -> list[CallToolResult]:
        await client.call_tool("analyze", {"paths": [str(before)]})
        pairs = ("d1", after), (before, after), ("d1", before)
        return [await client.call_tool("compare", {"before": str(one), "after": str(two)}) for one, two in pairs]

    by_name, by_path, same = with_agent(talk)
    assert not by_name.is_error
    assert values_of(by_name) == values_of(by_path)
    assert "same run" in values_of(same)["error"]


def test_a_cause_is_explained_and_an_unknown_one_is_an_error_that_names_the_nearest() -> None:
    told = ask("explain", cause="io.swap")
    assert values_of(told) == {"cause": "io.swap", "title": "memory paged in and out", "healthy": False}
    assert "What helps" in text_of(told)
    refused = ask("explain", cause="io.swpa")
    assert values_of(refused)["hint"].startswith("Did you mean io.swap")
    assert values_of(refused)["hint"].endswith(f"There are: {', '.join(CAUSES)}.")


@pytest.mark.parametrize("probe", ["gpu", "stacks"])
def test_where_no_bottleneck_is_named_the_next_move_is_a_tool(probe: str, tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    unseen = NotExamined(probe, "It could not look.", "")
    found = replace(diagnoses.undecided(), not_examined=(unseen,), job={"pid": 77, "trainers": 1})
    file.write_text(json_report.render(found))
    said = text_of(ask("analyze", paths=[str(file)]))
    assert ("watch longer with `seconds`" if probe == "gpu" else "`check` with pid 77 says") in said
    assert "--duration" not in said
    assert "perfdoctor check" not in said


def test_the_latest_diagnoses_are_kept() -> None:
    session = AgentSession()
    names = [session.keep(Report(Source(Path(str(number)), "report", {}))) for number in range(KEPT + 2)]
    assert session.find(names[1]) is None
    assert session.find(names[2]) is not None
    assert session.find(names[-1]) is not None


def test_without_the_sdk_the_command_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, "perfdoctor.commands.mcp.server")
    monkeypatch.setitem(sys.modules, "mcp.server.mcpserver", None)
    assert main(["mcp"]) == 1
    assert "pip install 'perfdoctor[mcp]'" in capsys.readouterr().err


def test_the_skill_is_printed_and_names_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mcp", "--skill"]) == 0
    skill = capsys.readouterr().out
    assert skill.startswith("---\nname: perfdoctor\ndescription: ")
    assert {tool.__name__ for tool in TOOLS} <= set(skill.replace("`", " ").split())


def test_a_server_that_nobody_talks_to_loads_no_analysis() -> None:
    heavy = "{'numpy', 'pandas', 'torch'}"
    script = f"import sys, perfdoctor.commands.mcp.server; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
