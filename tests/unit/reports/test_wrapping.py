from perfdoctor.reports.wrapping import line_ends

TEXT = "作业有 31% 的时间在等待读取，“现有的一个” worker 进程（pid 12）每秒只有 0.3 秒的工作。" * 3  # noqa: RUF001


def lines_of(text: str, width: int) -> list[str]:
    ends = line_ends(text, width)
    return [text[begin:end].rstrip() for begin, end in zip([0, *ends], [*ends, None], strict=True)]


def test_lines_are_full_and_none_is_too_long() -> None:
    from rich.cells import cell_len

    for width in (20, 33, 60):
        lines = lines_of(TEXT, width)
        assert max(map(cell_len, lines)) <= width
        assert all(cell_len(line) > width - 14 for line in lines[:-1])
        assert "".join("".join(lines).split()) == "".join(TEXT.split())


def test_punctuation_stays_with_what_it_belongs_to() -> None:
    for width in range(16, 40):
        lines = lines_of(TEXT, width)
        assert not any(line[0] in "，。）”" for line in lines)  # noqa: RUF001
        assert not any(line[-1] in "（“" for line in lines)  # noqa: RUF001


def test_a_word_that_is_longer_than_a_line_stays_whole() -> None:
    assert lines_of("位置在 /data/a/very/long/path.py:12 附近", 12) == [
        "位置在",
        "/data/a/very/long/path.py:12",
        "附近",
    ]
