"""Chinese says what English says: the same numbers and code, in its own letters, and of plain English texts too."""

import re
from collections import Counter
from collections.abc import Iterator

import pytest

from perfdoctor.causes import CAUSES
from perfdoctor.diagnosis import Advice, Fix
from perfdoctor.knowledge.libraries import USES
from perfdoctor.messages import Message
from perfdoctor.metrics import settings
from perfdoctor.metrics.names import METRICS
from perfdoctor.reports import compared_console, compared_html, console, html, treated_html
from perfdoctor.reports.chinese import causes as chinese_causes
from perfdoctor.reports.chinese import settings as chinese_settings
from perfdoctor.reports.chinese.phrasebook import COMMENTS, PHRASES
from perfdoctor.reports.english import causes as english_causes
from perfdoctor.reports.english import settings as english_settings
from perfdoctor.reports.language import LANGUAGES, language
from perfdoctor.reports.phrasebook import Phrasebook
from perfdoctor.reports.rows import setting_name
from perfdoctor.reports.text import is_prose
from perfdoctor.reports.treated_outline import treated_outline
from perfdoctor.reports.wording import cause_title, label, worded, worded_fix
from perfdoctor.results.treatment import Outcome
from tests.advice.printed import Printed, catalogue
from tests.builders import diagnoses, trials
from tests.builders.comparisons import compared, report, step_times
from tests.builders.phrases import ascii_marks, english_runs, reasons

HAN = re.compile("[\u4e00-\u9fff]")
# Not those that are part of a name: float16, NVIDIA's C1, sm_90.
NUMBER = re.compile(r"(?<![\w.])\d+(?:[.,]\d+)*")
COMMENT = re.compile(r"(?:^|\s)# ?(.*)$")
# Comments of code alone, and names that are the same in both languages.
NO_WORDS = {
    "torch.distributed.init_process_group('nccl', pg_options=options)",
    "Kubernetes: resources.limits.cpu; systemd: CPUQuota=; cgroup v2: cpu.max",
    "Lightning: Trainer(detect_anomaly=False)",
    "perfdoctor analyze traces",
    "NVDEC",
}
# Reasons that are a command or name only, and what is put together from others.
NO_REASONS = {
    'sudo "$(which perfdoctor)" ps',
    "", "perfdoctor treat -- COMMAND",
    "{}: {}", "profile=1", "perfdoctor attach PID", "perfdoctor analyze TRACE", "dyno gputrace", "kill -CONT {}",
    "unset {}", "pip install --upgrade py-spy", "sudo sysctl kernel.perf_event_paranoid=2",
    "torch.profiler.profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])",
}  # fmt: skip


def chinese(printed: Printed) -> Fix:
    with language("zh"):
        return worded_fix(Advice(Message(printed.id, tuple(printed.values.items()))))


def pairs() -> Iterator[tuple[Printed, Fix]]:
    for printed in catalogue():
        yield printed, chinese(printed)


def test_every_piece_of_advice_is_in_chinese() -> None:
    english = [one.id for one, fix in pairs() if not (HAN.search(fix.title) and HAN.search(fix.why))]
    assert english == []


def test_numbers_are_the_same() -> None:
    def numbers(fix: Fix) -> set[str]:
        return set(NUMBER.findall("\n".join((fix.title, fix.why, fix.change))))

    different = {one.id: numbers(one.fix) ^ numbers(fix) for one, fix in pairs()}
    assert {id: found for id, found in different.items() if found} == {}


def test_code_is_the_same_and_sentences_are_not() -> None:
    def code(change: str) -> list[str]:
        return [COMMENT.sub("", line) for line in change.splitlines()]

    for one, fix in pairs():
        if is_prose(one.fix.change):
            assert HAN.search(fix.change), one.id
            assert is_prose(fix.change), one.id
        else:
            assert code(fix.change) == code(one.fix.change), one.id


def test_comments_in_code_are_in_chinese() -> None:
    comments = {found[1] for _, fix in pairs() for line in fix.change.splitlines() if (found := COMMENT.search(line))}
    assert {one for one in comments if not HAN.search(one)} == NO_WORDS


def test_every_cause_metric_and_unit_has_its_name() -> None:
    with language("zh"):
        assert [cause for cause in CAUSES if not HAN.search(cause_title(cause))] == []
        assert [one.meaning for one in METRICS.values() if not HAN.search(worded(one.meaning.format("x")))] == []
        units = {one.unit for one in METRICS.values() if re.match(".*[a-z]{3}", one.unit) and one.unit[0] != "/"}
        assert [unit for unit in units if not HAN.search(label("unit", unit=unit, one=False))] == []
    assert worded("cores kept busy by the job") == "cores kept busy by the job"


def test_every_cause_is_explained_with_the_same_names() -> None:
    """Names in code are those of docs/evidence.md and of other people's software."""
    assert list(chinese_causes.EXPLAINED) == list(english_causes.EXPLAINED)
    for cause, row in english_causes.EXPLAINED.items():
        other = chinese_causes.EXPLAINED[cause]
        assert HAN.search(other.means), cause
        for part in ("means", "looks_like", "helps", "refuted"):
            said, words = getattr(row, part), getattr(other, part)
            assert bool(words) == bool(said), (cause, part)
            assert english_runs(words) == [], (cause, part)
            names = [set(re.findall(r"`([\w.=()]+)`", text)) for text in (said, words)]
            assert names[0] == names[1], (cause, part)
            assert set(NUMBER.findall(said)) == set(NUMBER.findall(words)), (cause, part)


def test_every_reason_is_in_chinese() -> None:
    """What probes and traces say of themselves, as it stands in their source."""
    found = reasons()
    assert len(found) > 100
    with language("zh"):
        left = {text for text in found if not HAN.search(worded(text.format(*"ABCDE")))}
    assert {text: found[text] for text in left - NO_REASONS} == {}


@pytest.mark.parametrize("phrases", [PHRASES, COMMENTS])
def test_phrases_keep_what_differs(phrases: dict[str, str]) -> None:
    for phrase, words in phrases.items():
        assert words.format(*"ABCDE").count("{") == 0
        said = Counter(words.format(*(f"<{place}>" for place in range(9))).split("<"))
        assert len(said) - 1 == phrase.count("{}"), phrase
        assert HAN.search(words) or words.partition("（")[0] in ("Tensor Core", "trace", "world size"), phrase  # noqa: RUF001


def test_what_stands_in_a_phrase_is_looked_up_too() -> None:
    book = Phrasebook({"{} is {}.": "{1} {0}。", "the disk": "磁盘", "full": "满"})
    assert book.look_up("the disk is full.") == "满 磁盘。"
    assert book.look_up("the disk is full") == "the disk is full"


def test_reasons_that_were_run_together_are_looked_up_one_by_one() -> None:
    book = Phrasebook({"It is {}.": "它{}。", "full": "满", "A. B.": "甲乙。", "wait": "等待"})
    assert book.look_up("A. B. It is full.") == "甲乙。它满。"
    assert book.look_up("wait; mount /a; It is full.") == "等待;mount /a; 它满。"
    assert book.look_up("One. Two.") == "One. Two."
    assert book.look_up("A. B. " * 9) == "A. B. " * 9


def test_the_phrase_that_leaves_least_open_is_taken() -> None:
    book = Phrasebook({"{} ended": "{} 结束", "process {} ended": "进程 {} 结束"})
    assert book.look_up("process 7 ended") == "进程 7 结束"


def test_a_long_text_of_a_strangers_is_looked_up_once_through() -> None:
    hostile = "process 1: " * 2_000 + "x: 1 of " * 2_000
    with language("zh"):
        assert worded(hostile).count("process 1: ") >= 1_990
        assert worded(f"{hostile}(9 of their time)").endswith("）")  # noqa: RUF001


def test_users_own_texts_pass_as_they_are() -> None:
    with language("zh"):
        for text in ("My rule found something.", "/data/train (1).bin", "train.py:12 step (30 %)", "threads", "high"):
            assert worded(text) == text


@pytest.mark.parametrize("outcome", Outcome)
def test_a_treatment_is_told_in_chinese(outcome: Outcome) -> None:
    trial = trials.a_trial(outcome=outcome)
    with language("zh"):
        told = treated_outline(trials.treated(trials=(trial,), best=None))
    rows = [text for row in told.rows for text in (row.title, row.verdict, row.remark)]
    said = list(filter(None, (told.headline, told.summary, *told.left_out, *rows)))
    assert english_runs("\n".join(said)) == []
    assert [text for text in said if not HAN.search(text)] == []
    assert [name for name, _ in (*told.control, *told.spent) if not HAN.search(name)] == []


def chinese_outputs() -> Iterator[str]:
    own = [make() for make in diagnoses.ALL if make is not diagnoses.hostile]
    yield from map(html.render, own)
    yield from (console.render(diagnosis, width=400, color=False) for diagnosis in own)
    yield treated_html.render(trials.treated(trials=(trials.a_trial(),)))
    comparison = compared(report(step_times(1, 0.1)), report(step_times(2, 0.08), job={"host": "other"}))
    yield compared_html.render(comparison)
    yield compared_console.render(comparison, width=400, color=False)


def test_no_ascii_punctuation_stands_between_chinese_words() -> None:
    with language("zh"):
        assert [left for text in chinese_outputs() for left in ascii_marks(text)] == []


def test_ascii_punctuation_between_chinese_words_is_noticed() -> None:
    assert ascii_marks("\u6b65: 3") == ascii_marks("<p>\u6b65<span>: 3</span></p>") != []
    assert ascii_marks('<p aria-label="a, \u6b65">x</p>') != []
    assert ascii_marks("\u6b65\uff1a3 ms\uff0c f(x): a.py:3 <code>\u6b65: 3</code>") == []


def test_languages_have_a_letter_of_their_own() -> None:
    assert list(LANGUAGES) == ["en", "zh"]
    assert HAN.match(LANGUAGES["zh"].letter)


def documented_settings() -> list[str]:
    """The names in the table of ``perfdoctor.metrics.settings``."""
    lines = str(settings.__doc__).split("\n")
    names = [line.split()[0] for line in lines if re.match(r"[a-z_]+(\.\S+)? +\S", line) and "  " in line]
    return [name for name in names if name not in ("setting", "others")] + [use.setting for use in USES]


def test_every_setting_has_a_label_in_each_language() -> None:
    assert {"workers", "memory_bytes", "kernel", "watched_by", "disk.nvme0n1"} <= set(documented_settings())
    for code in LANGUAGES:
        with language(code):
            raw = [name for name in documented_settings() if setting_name(name) == name]
            assert raw == [], code
    assert chinese_settings.NAMES.keys() == english_settings.NAMES.keys()
    assert chinese_settings.PREFIXES.keys() == english_settings.PREFIXES.keys()
    assert chinese_settings.VALUES.keys() == english_settings.VALUES.keys()
