import re
from base64 import b64encode
from dataclasses import replace
from hashlib import sha256
from html.parser import HTMLParser
from importlib.resources import files
from itertools import pairwise

import pytest

from perfdoctor.causes import CAUSES
from perfdoctor.diagnosis import Diagnosis, Fix, Series
from perfdoctor.reports.charts import MAX_CHARTS, MAX_LINES
from perfdoctor.reports.english.page import WORDS
from perfdoctor.reports.html import render
from perfdoctor.reports.wording import cause_goes
from perfdoctor.results.activity import TRAINER, SourceView, Track
from tests.builders import diagnoses
from tests.files import ROOT

LIMIT_BYTES = 500_000
LOADING = {"src", "href", "srcset", "data", "action", "poster", "background", "xlink:href", "formaction"}
VOID = {"meta", "link", "br", "col"}


class Page(HTMLParser):
    """What a browser would make of a page: tags, attributes and text. Every tag must be closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.words: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"style", "script"} & set(self.open):
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def values(self, attribute: str) -> list[str]:
        return [attributes[attribute] for _, attributes in self.tags if attribute in attributes]


@pytest.fixture(params=diagnoses.ALL, ids=lambda make: make.__name__)
def diagnosis(request: pytest.FixtureRequest) -> Diagnosis:
    made: Diagnosis = request.param()
    return made


def long_course(chart: str, name: str, count: int) -> Series:
    """An hour of looks."""
    course = tuple(diagnoses.wave(count, 3600.0, 0.1, 0.9, turns=500))
    return Series(chart, name, "fraction", diagnoses.times(count, 3600.0), course)


def scripts(text: str) -> list[str]:
    return re.findall(r"<script[^>]*>(.*?)</script>", text, re.DOTALL | re.IGNORECASE)


def test_the_page_loads_nothing(diagnosis: Diagnosis) -> None:
    text = render(diagnosis)
    page = Page(text)
    loaded = [value for name in LOADING for value in page.values(name)]
    assert loaded
    assert all(value.startswith("#") or value == "data:," for value in loaded)
    assert not [tag for tag, _ in page.tags if tag in {"img", "iframe", "object", "embed", "base", "form"}]
    assert not re.search(r"@import|url\((?!#)|fetch\(|XMLHttpRequest|\bimport\b", text)


def test_the_only_script_is_the_one_that_the_policy_names(diagnosis: Diagnosis) -> None:
    text = render(diagnosis)
    (script,) = scripts(text)
    assert script == files("perfdoctor.reports").joinpath("assets/report.js").read_text("utf-8")
    digest = b64encode(sha256(script.encode()).digest()).decode()
    (policy,) = [value for value in Page(text).values("content") if "default-src" in value]
    assert policy.startswith("default-src 'none'")
    assert f"script-src 'sha256-{digest}';" in policy
    assert not [name for _, attributes in Page(text).tags for name in attributes if name.startswith("on")]


def test_there_is_no_address_in_the_page_but_the_strangers() -> None:
    assert "http" not in render(diagnoses.input_bound()).replace("http-equiv", "")


def test_the_page_is_well_formed_and_its_ids_are_unique(diagnosis: Diagnosis) -> None:
    page = Page(render(diagnosis))
    assert page.open == []
    ids = page.values("id")
    assert len(ids) == len(set(ids))
    used = set(page.values("aria-labelledby")) | {link[1:] for link in page.values("href") if link.startswith("#")}
    assert used <= set(ids)


def test_it_can_be_used_without_seeing_it(diagnosis: Diagnosis) -> None:
    page = Page(render(diagnosis))
    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    drawings = [attributes for _, attributes in page.tags if attributes.get("role") == "img"]
    assert bool(drawings) == bool(diagnosis.activity.tracks or diagnosis.series)
    assert all(attributes["aria-label"].strip() for attributes in drawings)
    hidden = [attributes for tag, attributes in page.tags if tag == "svg"]
    assert all(attributes["aria-hidden"] == "true" for attributes in hidden)
    assert [tag for tag, _ in page.tags if tag in ("header", "nav", "main", "footer")] == [
        "header", "nav", "main", "footer",
    ]  # fmt: skip


def test_it_says_everything() -> None:
    diagnosis = diagnoses.straggler()
    text = Page(render(diagnosis)).text
    assert "I/O bottleneck: reading from storage" in text
    assert "45% of the time goes into reading from storage; rank 1 keeps the others waiting" in text
    assert "Rank 1 is the straggler" in text
    for finding in diagnosis.findings:
        expected = [finding.cause, finding.summary, finding.refuted_by]
        expected += [part for fix in finding.fixes for part in (fix.title, fix.why, fix.change)]
        expected += [item.probe for item in finding.evidence]
        assert not [part for part in expected if part not in text]
    assert diagnosis.not_examined[0].enable in text
    assert "3% of one core" in text
    assert str(diagnosis.job["command"]) in text


def test_only_code_is_set_as_code() -> None:
    text = render(diagnoses.input_bound())
    code = [re.sub("<[^>]*>", "", one) for one in re.findall("<pre><code>(.*?)</code></pre>", text, re.DOTALL)]
    assert len(code) == 3
    assert "num_workers=7,  # was 2\n)" in code[0]
    assert diagnoses.ADVICE in text
    assert not [part for part in code if diagnoses.ADVICE in part]


def test_a_sound_job_reads_as_good_news() -> None:
    text = Page(render(diagnoses.sound())).text
    assert "No bottleneck found" in text
    assert "if fixed" not in text
    assert WORDS["first"] not in text


def test_the_sentence_says_which_part_of_a_cause_it_is() -> None:
    base = diagnoses.input_bound()
    finding = replace(base.findings[0], title="Drawing the indices of the next batch")
    page = render(replace(base, findings=(finding, *base.findings[1:])))
    assert "62% of the time goes into drawing the indices of the next batch</h1>" in page


def test_a_change_that_makes_a_sound_job_much_faster_comes_first() -> None:
    base = diagnoses.sound()
    small = Fix("Use 2 workers", "One is late.", "num_workers=2", 1.05, (1.0, 1.05))
    large = Fix("Update all at once", "The optimizer takes half of it.", "fused=True", 1.6, (1.4, 1.6))
    findings = (
        replace(base.findings[0], fixes=(small,)),
        replace(diagnoses.input_bound().findings[0], share=0.1, fixes=(small, large)),
    )
    page = Page(render(replace(base, findings=findings)))
    assert "No bottleneck found One change could make the job 1.4 to 1.6 times as fast" in page.text
    assert f"{WORDS['first']} Update all at once" in page.text
    assert "The next limit after that" not in page.text
    assert page.values("href").count("#first") == 1
    assert page.values("href").count("#change-2") == 2


def test_one_second_is_divided_by_the_shares_and_sums_to_it() -> None:
    text = render(diagnoses.input_bound())
    rows = [int(ms) for ms in re.findall(r'<td class="ms">(\d+) ms</td>', text)]
    assert rows == [620, 270, 40, 33, 30, 7, 1000]
    assert sum(rows[:-1]) == rows[-1]
    places = [
        tuple(map(float, found)) for found in re.findall(r"left: ([\d.]+)%; width: ([\d.]+)%\"></span></td>", text)
    ]
    assert [float(left) for left, _ in places] == pytest.approx([0, 62, 89, 93, 96.3, 99.3])


def test_a_change_is_shown_once_with_all_that_it_serves() -> None:
    base = diagnoses.input_bound()
    shared = base.findings[0].fixes[1]
    logs = replace(base.findings[1], fixes=(shared, *base.findings[1].fixes))
    page = Page(render(replace(base, findings=(base.findings[0], logs))))
    assert page.text.count(f"{shared.why}") == 1
    assert "Helps against: preparing the input on the CPU , logging" in page.text
    assert page.values("href").count("#change-2") == 2


def test_before_and_after_is_that_of_the_first_change() -> None:
    base = diagnoses.input_bound()
    fix = Fix("Do it", "It helps.", "do()", predicted_speedup=2.0, speedup_range=(1.6, 2.5))
    text = Page(render(replace(base, findings=(replace(base.findings[0], fixes=(fix,)),)))).text
    assert "1.6 to 2.5 times as fast. One second of today's training would take 500 ms (400 ms to 625 ms)" in text
    assert "a step: 104 ms now, 52 ms then" in text
    assert "The next limit after that: the model's arithmetic on the CPU, 27% of the time today." in text


def test_what_cannot_be_predicted_is_bounded() -> None:
    text = Page(render(diagnoses.input_bound())).text
    told = "It makes the job up to 2.3 times as fast; how much of this cause it removes cannot be predicted."
    assert told in text


def test_look_alikes_are_ruled_out_by_what_was_measured() -> None:
    text = Page(render(diagnoses.input_bound())).text
    assert "Reading from storage <1% of the time ; read from storage: 1.4 MB/s ruled out" in text
    assert "More runnable threads than cores 8% of the time also there" in text
    assert "Queueing for a lock of the job's own not examined" in text


def test_hostile_text_is_text() -> None:
    text = render(diagnoses.hostile())
    text.encode("utf-8")
    assert text.count("<script") == 1
    assert "<img" not in text
    assert not [value for name in ("onerror", "onload", "onclick") for value in Page(text).values(name)]
    assert diagnoses.ATTACK in Page(text).text
    assert all(line.isprintable() for line in text.split("\n"))
    assert len(text) < LIMIT_BYTES / 4, "names of 10,000 characters are cut"


def test_a_hostile_severity_is_not_a_class() -> None:
    base = diagnoses.input_bound()
    finding = replace(base.findings[0], severity='x" onclick="alert(3)')
    page = Page(render(replace(base, findings=(finding,))))
    assert not page.values("onclick")


def test_the_same_diagnosis_gives_the_same_page(diagnosis: Diagnosis) -> None:
    assert render(diagnosis) == render(diagnosis)


def test_a_page_stays_small() -> None:
    names = [(f"chart {c}", f"line {n}") for c in range(MAX_CHARTS + 1) for n in range(MAX_LINES + 1)]
    series = tuple(long_course(chart, name, count=3600) for chart, name in names)
    page = render(replace(diagnoses.input_bound(), series=series))
    assert page.count('class="plot lines-plot"') == MAX_CHARTS
    assert len(page.encode("utf-8")) < LIMIT_BYTES


def test_a_page_of_64_ranks_stays_small() -> None:
    base = diagnoses.straggler()
    causes = [line["cause"] for line in base.ranks[0]["breakdown"]]
    restless = {
        cause: tuple((place * (number + 3)) % 97 / 300 for place in range(120)) for number, cause in enumerate(causes)
    }
    tracks = tuple(Track(TRAINER, rank, 100 + rank, 0.125, (True,) * 120, restless) for rank in range(64))
    ranks = tuple({**base.ranks[0], "rank": rank, "pid": 100 + rank} for rank in range(64))
    text = render(replace(base, ranks=ranks, activity=replace(base.activity, tracks=tracks)))
    assert len(text.encode()) < 2_000_000
    assert text.count('class="row"') >= 64
    assert Page(text).text.count("rank 63") >= 2


def test_how_the_numbers_of_a_rank_add_up_is_said() -> None:
    base = diagnoses.straggler()
    for rank in base.ranks:
        assert sum(line["share"] for line in rank["breakdown"]) == pytest.approx(1.0)
    text = Page(render(base)).text
    assert "The causes of a rank add up to 100% of its time" in text
    assert "Waiting for other ranks does not come on top" in text


def test_what_is_not_drawn_is_said() -> None:
    at = diagnoses.times(10, 1.0)
    crowd = [Series("Cores", f"core {n}", "fraction", at, (n / 20,) * 10) for n in range(20)]
    blind = Series("GPU", "busy", "fraction", at, (None,) * 10)
    base = replace(diagnoses.input_bound(), series=(*crowd, blind), not_drawn=("No stacks were seen.",))
    text = Page(render(base)).text
    assert f"{20 - MAX_LINES} smaller lines are not drawn" in text
    assert "core 19" in text
    assert "core 11" not in text
    assert "1 more measurements are not drawn" in text
    assert "No stacks were seen." in text


def test_source_is_shown_with_the_share_of_each_line_and_the_hot_ones_marked() -> None:
    text = render(diagnoses.input_bound())
    rows = re.findall(
        r'<tr id="[\w-]+"( class="costs")?><th scope="row">(\d+)</th>'
        r'<td class="cost">(.*?)</td><td><code style="(.*?)">(.*?)<',
        text,
    )
    assert [(bool(hot), int(number)) for hot, number, *_ in rows] == [
        (False, 38), (False, 39), (False, 40), (True, 41), (True, 42),
    ]  # fmt: skip
    assert rows[3][3:] == ("--indent: 4", "image = image.convert(&#34;RGB&#34;)"), "without what all are indented by"
    assert "<b>60%</b>" in rows[3][2]
    assert "width: 100.0%" in rows[3][2]
    assert "preparing the input" in rows[3][2], "for those who cannot see the colour"
    assert rows[0][2] == ""
    page = Page(text)
    assert WORDS["source_changed"] not in page.text
    assert WORDS["no_source"] not in page.text


def test_a_finding_and_the_lines_where_its_time_goes_lead_to_each_other() -> None:
    text = render(diagnoses.input_bound())
    finding = text[text.index('id="finding-1"') : text.index("</article>")]
    lines = re.findall(r'<a href="#(source-1-\d+)"><code>(.*?)</code></a> <span class="faint">\((.*?)\)', finding)
    assert lines == [("source-1-41", "dataset.py:41", "60%"), ("source-1-42", "dataset.py:42", "2%")]
    for anchor, *_ in lines:
        (row,) = re.findall(rf'<tr id="{anchor}".*?</tr>', text)
        assert '<a href="#finding-1"><b>' in row
    assert len(re.findall(r'<tr id="source-', text)) == 5
    assert text.count('href="#source-') == 3, "the third is in the table of lines; no other finding has any"


def test_a_line_of_a_file_far_down_leads_to_its_source() -> None:
    base = diagnoses.input_bound()
    (excerpt,), (line,) = base.activity.source.excerpts, base.activity.lines
    far = f"/home/me/{'folder/' * 20}dataset.py"
    source = SourceView((replace(excerpt, file=far),))
    lines = (replace(line, line=line.line.replace(excerpt.file, far)),)
    text = render(replace(base, activity=replace(base.activity, source=source, lines=lines)))
    assert text.count('href="#source-1-41"') == 2, "from the finding, and from the table of lines"


def test_a_page_of_a_stuck_job_gives_its_time_to_no_cause() -> None:
    moving = diagnoses.input_bound()
    text = render(replace(diagnoses.stuck(), activity=replace(moving.activity, steps=())))
    assert "preparing the input" in Page(render(moving)).text
    assert "preparing the input" not in Page(text).text
    assert "Flowers.__getitem__" in Page(text).text, "where it stands is told all the same"
    assert WORDS["flame_colours"] not in text


def test_source_that_changed_or_was_not_read_is_said_to_be_so() -> None:
    base = diagnoses.input_bound()
    (excerpt,) = base.activity.source.excerpts
    unread = (("/home/me/net.py", "No such file or directory"),)
    source = SourceView((replace(excerpt, changed=True),), unread)
    text = Page(render(replace(base, activity=replace(base.activity, source=source)))).text
    assert WORDS["source_changed"] in text
    assert "The source of /home/me/net.py was not read: No such file or directory." in text
    bare = Page(render(replace(base, activity=replace(base.activity, source=SourceView())))).text
    assert WORDS["no_source"] in bare


def test_no_words_of_the_page_are_left_over_and_every_cause_has_its_own() -> None:
    sources = [*(ROOT / "reports").glob("*.py"), *(ROOT / "reports" / "assets").glob("*.html")]
    text = "\n".join(source.read_text() for source in sources)
    assert [word for word in WORDS if not re.search(rf'words\.{word}\b|"{word}"', text)] == []
    bottlenecks = {cause.id for cause in CAUSES.values() if not cause.healthy and cause.bottleneck}
    assert {cause for cause in CAUSES if cause_goes(cause)} == bottlenecks
