"""No figure is invented on the way to an agent: the corpus of recordings, asked for through an MCP client."""

import json
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp_types import CallToolResult

from perfdoctor.analysis.from_recording import examine
from perfdoctor.commands.compare import compare_sources
from perfdoctor.commands.run_paths import read_source
from perfdoctor.recording.reader import Recording
from perfdoctor.reports import compared_json, compared_markdown
from perfdoctor.reports import json as json_report
from perfdoctor.reports.fitting import ROOM
from perfdoctor.reports.outline import SMALL_SHARE
from tests.figures import FIGURE, falsified, size, unfounded
from tests.processes.agents import ask, text_of, values_of, with_agent
from tests.recordings import corpus, packing

OF_VERDICT = ("bottleneck", "cause", "share", "confidence", "predicted_speedup", "straggler_rank", "level")


def report_of(name: str, folder: Path) -> tuple[Path, dict[str, Any]]:
    """A recording of the corpus, unpacked, and its JSON report."""
    file = folder / f"{name}.perfdoctor"
    packing.unpack(corpus.FOLDER / f"{name}{corpus.SUFFIX}", file)
    with Recording.open(file) as recording:
        text = json_report.render(examine(recording))
    (folder / f"{name}.json").write_text(text)
    return file, json.loads(text)


def asked(path: Path, findings: int) -> list[CallToolResult]:
    """The diagnosis of a file, and each of its findings."""

    async def talk(client: Client) -> list[CallToolResult]:
        first = await client.call_tool("analyze", {"paths": [str(path)]})
        name = values_of(first)["diagnosis"]
        others = range(1, findings + 1)
        arguments = [{"diagnosis": name, "number": number} for number in others]
        return [first, *[await client.call_tool("read_finding", one) for one in arguments]]

    return with_agent(talk)


def rounded(value: Any) -> Any:
    return float(f"{value:.6g}") if isinstance(value, float) else value


@pytest.mark.parametrize("name", corpus.names())
def test_every_figure_is_that_of_the_json_report(name: str, tmp_path: Path) -> None:
    file, report = report_of(name, tmp_path)
    first, *findings = asked(file, len(report["findings"]))
    assert unfounded(text_of(first), report) == []
    told = values_of(first)
    assert told["verdict"] == {key: rounded(report["verdict"][key]) for key in OF_VERDICT}
    large = [line for line in report["breakdown"] if line["share"] >= SMALL_SHARE]
    assert told["breakdown"] == [{"cause": line["cause"], "share": rounded(line["share"])} for line in large]
    keys = ("cause", "severity", "share", "predicted_speedup")
    for number, (result, finding) in enumerate(zip(findings, report["findings"], strict=True), start=1):
        assert unfounded(text_of(result), report, number) == []
        brief = {"number": number, **{key: rounded(finding[key]) for key in keys}}
        assert told["findings"][number - 1] == brief
        whole = values_of(result)
        assert {key: whole[key] for key in brief} == brief
        evidence = [
            {key: rounded(item[key]) for key in ("name", "unit", "probe", "value")} for item in finding["evidence"]
        ]
        assert [item for item in whole["evidence"] if isinstance(item["value"], float)] == [
            item for item in evidence[: len(whole["evidence"])] if isinstance(item["value"], float)
        ]
    for result in (first, *findings):
        assert size(text_of(result), values_of(result)) <= ROOM
    if (stuck := report["stuck"]) is not None:
        assert told["stuck"]["kind"] == stuck["kind"]
        assert "\nWho stands where:\n- " in text_of(first)
        return
    assert report["findings"][0]["cause"] in text_of(first)
    assert "\nEvidence:\n- " in text_of(first)
    for fix in report["findings"][0]["fixes"][:1]:
        assert fix["change"].splitlines()[0].strip() in text_of(first)


@pytest.mark.parametrize("name", ["straggler_disk", "too_few_workers"])
def test_an_invented_figure_would_be_found(name: str, tmp_path: Path) -> None:
    """What the test above is worth: of figures that are changed one at a time nine in ten are found."""
    _, report = report_of(name, tmp_path)
    text = text_of(asked(tmp_path / f"{name}.json", 0)[0])
    changed = list(falsified(text))
    found = [one for one in changed if unfounded(one, report)]
    assert len(changed) > 20
    assert len(found) >= 0.9 * len(changed)


def test_a_recording_is_answered_like_its_json_report(tmp_path: Path) -> None:
    file, _ = report_of("cold_reads", tmp_path)
    from_recording, from_json = asked(file, 1), asked(tmp_path / "cold_reads.json", 1)
    assert [text_of(one) for one in from_recording] == [text_of(one) for one in from_json]
    assert [values_of(one) for one in from_recording] == [values_of(one) for one in from_json]


@pytest.mark.parametrize("names", [("too_few_workers", "sound_training"), ("sound_from_inside", "vae_metrics")])
def test_a_comparison_has_the_figures_of_its_other_reports(names: tuple[str, str], tmp_path: Path) -> None:
    for name in names:
        report_of(name, tmp_path)
    before, after = (read_source(tmp_path / f"{name}.json") for name in names)
    comparison = compare_sources(before, after)
    result = ask("compare", before=str(before.path), after=str(after.path))
    told, report = values_of(result), json.loads(compared_json.render(comparison))
    assert told == {
        **{key: report[key] for key in told if key != "comparable"},
        "comparable": not comparison.forbidding,
    }
    figures = {figure[0] for figure in FIGURE.finditer(compared_markdown.render(comparison).replace("\xa0", " "))}
    assert [figure[0] for figure in FIGURE.finditer(text_of(result)) if figure[0] not in figures] == []
    assert len(figures) > 10
    assert size(text_of(result), told) <= ROOM
