"""Keys by what terminals send for them."""

import pytest

from perfdoctor.errors import PerfDoctorError
from perfdoctor.reports.terminal import named, require_terminal


@pytest.mark.parametrize(
    ("sent", "keys"),
    [
        (b"q", ["q"]),
        (b"\x1b", ["escape"]),
        (b"\x1b[A\x1bOB", ["up", "down"]),
        (b"\x1b[5~\x1b[6~", ["page up", "page down"]),
        (b"\r", ["enter"]),
        (b"\x7f", ["backspace"]),
        (b"\x03", ["ctrl-c"]),
        ("jé/字".encode(), ["j", "é", "/", "字"]),
        (b"\x1b[24~q", ["q"]),  # F12 means nothing
        (b"\x1b[1;5Cq", ["q"]),  # nor does Ctrl with an arrow
        (b"\x1b[200~", []),
        (b"\x00\xff\x01", []),
    ],
)
def test_keys_are_named(sent: bytes, keys: list[str]) -> None:
    assert list(named(sent)) == keys


def test_a_terminal_that_cannot_be_drawn_on_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    with pytest.raises(PerfDoctorError, match="cannot be drawn on") as refused:
        require_terminal()
    assert "without --live" in refused.value.hint
