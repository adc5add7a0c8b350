"""The diagnosis as one page that opens anywhere: no script, nothing loaded from elsewhere."""

from importlib.resources import files

from perfdoctor.diagnosis import Diagnosis
from perfdoctor.reports.charts import charts
from perfdoctor.reports.outline import outline
from perfdoctor.reports.text import lower_first


def render(diagnosis: Diagnosis) -> str:
    """The page, to be written as UTF-8. The same diagnosis always gives the same text."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["lower_first"] = lower_first
    drawn = charts(diagnosis.series)
    titles = {one.chart for one in diagnosis.series}
    return environment.from_string(_asset("report.html")).render(
        report=outline(diagnosis),
        charts=drawn,
        charts_left_out=len(titles) - len(drawn),
        style=_asset("report.css"),
    )


def _asset(name: str) -> str:
    return files("perfdoctor.reports.assets").joinpath(name).read_text("utf-8")
