"""Which language a report is in."""

import io
import json
import threading
from collections.abc import Mapping

import pytest

from perfdoctor.__main__ import main
from perfdoctor.probes.inside import options
from perfdoctor.reports import console, treated_json
from perfdoctor.reports import json as json_report
from perfdoctor.reports.language import LANGUAGES, Choice, choice, for_stream, language
from perfdoctor.reports.outputs import console_text
from perfdoctor.reports.wording import label
from tests.builders import diagnoses, trials


@pytest.mark.parametrize(
    ("environment", "code"),
    [
        ({}, "en"),
        ({"LANG": "zh_CN.UTF-8"}, "zh"),
        ({"LANG": "zh"}, "zh"),
        ({"LANG": "zh_SG@pinyin"}, "zh"),
        ({"LANG": "de_DE.UTF-8"}, "en"),
        ({"LANG": "C"}, "en"),
        ({"LC_MESSAGES": "en_US.UTF-8", "LANG": "zh_CN.UTF-8"}, "en"),
        ({"LC_ALL": "zh_CN.UTF-8", "LC_MESSAGES": "en_US.UTF-8", "LANG": "C"}, "zh"),
        ({"LC_ALL": "", "LC_MESSAGES": "", "LANG": "zh_CN.GB18030"}, "zh"),
        ({"LC_ALL": "C", "LANG": "zh_CN.UTF-8"}, "en"),
        ({"LC_CTYPE": "zh_CN.UTF-8"}, "en"),
    ],
)
def test_the_locale_decides_where_nothing_was_asked_for(environment: Mapping[str, str], code: str) -> None:
    assert choice(None, environment) == Choice(code, asked=False)
    assert choice("en", environment) == Choice("en", asked=True)
    assert choice("zh", environment) == Choice("zh", asked=True)


def test_it_holds_within_and_not_afterwards_nor_in_another_thread() -> None:
    heard = []
    with language("zh"):
        thread = threading.Thread(target=lambda: heard.append(label("evidence")))
        thread.start()
        thread.join()
        with language("en"):
            heard.append(label("evidence"))
        heard.append(label("evidence"))
    heard.append(label("evidence"))
    assert heard == ["Evidence", "Evidence", "证据", "Evidence"]


def stream(encoding: str) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(), encoding=encoding)


@pytest.mark.parametrize(
    ("encoding", "title"), [("utf-8", "证据"), ("gb18030", "证据"), ("ascii", "Evidence"), ("latin-1", "Evidence")]
)
def test_a_stream_gets_what_it_can_show(encoding: str, title: str, capsys: pytest.CaptureFixture[str]) -> None:
    with language("zh"):
        text = console_text(diagnoses.input_bound(), stream(encoding))
    text.encode(encoding)
    assert title in text
    said = capsys.readouterr().err
    assert said.count("\n") == (title == "Evidence")
    assert (f"The encoding {encoding} cannot show zh" in said) == (title == "Evidence")


def test_nothing_is_said_of_a_language_that_was_not_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    with language("zh", asked=False), for_stream(stream("ascii")):
        assert label("evidence") == "Evidence"
    assert capsys.readouterr().err == ""


def test_programs_read_english_unless_another_language_was_asked_for() -> None:
    diagnosis, treated = diagnoses.with_messages(), trials.treated()
    english = json_report.render(diagnosis), treated_json.render(treated)
    with language("zh", asked=False):
        assert (json_report.render(diagnosis), treated_json.render(treated)) == english
        assert list(diagnosis.to_frame("fixes")["title"]) == [
            json.loads(english[0])["findings"][0]["fixes"][0]["title"]
        ]
    with language("zh"):
        asked = json.loads(json_report.render(diagnosis))
    plain = json.loads(english[0])
    assert asked["findings"][0]["fixes"][0]["title"] == "由另一个线程写"
    assert asked["findings"][0]["evidence"][0]["name"] == "作业占用"
    for told in (asked, plain):  # units and ids are the same in each language
        assert told["findings"][0]["evidence"][0]["unit"] == "cores"
        assert told["breakdown"] == plain["breakdown"]


def test_a_program_may_choose() -> None:
    with language("zh"):
        text = console.render(diagnoses.input_bound(), width=80, color=False, encoding="utf-8")
    assert "时间去向" in text
    with pytest.raises(KeyError), language("fr"):
        pass


def test_an_unknown_language_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "job.perfdoctor", "--lang", "fr"]) == 2
    assert "invalid choice: 'fr'" in capsys.readouterr().err


def test_diagnose_offers_the_same_languages() -> None:
    assert tuple(LANGUAGES) == options.LANGUAGES
    assert options.Options(lang="zh").lang == "zh"
    with pytest.raises(ValueError, match="lang='fr' is no language of the reports; write en or zh"):
        options.Options(lang="fr")
