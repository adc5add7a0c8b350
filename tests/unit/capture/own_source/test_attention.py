"""Attention that is written out in the job's own source."""

import ast
from textwrap import dedent

import pytest

from perfdoctor.capture.own_source.detours import find_detours


def found(text: str) -> list[tuple[int, int, str, str, str]]:
    """Of all attention the first line, the last, and what is written for queries, keys and values."""
    source = dedent(text)
    rows = find_detours("net.py", ast.parse(source), source.splitlines())
    return [(row.line, row.last_line, row.kept, row.new, row.put) for row in rows if row.way == "written_out"]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (
            """\
            def forward(self, x):
                att = (q @ k.transpose(-2, -1)) / math.sqrt(self.width)
                att = att.masked_fill(~self.mask[:t, :t], float("-inf")).softmax(-1)
                return self.out(att @ v)
            """,
            (2, 4),
        ),
        (
            """\
            def forward(self, x):
                scores = torch.matmul(q, k.transpose(-1, -2)) * self.scale
                if mask is not None:
                    scores = scores.masked_fill(mask == 0, -1e9)
                weights = F.softmax(scores, dim=-1)
                weights = self.dropout(weights)
                return torch.matmul(weights, v).transpose(1, 2)
            """,
            (2, 7),
        ),
        ("out = torch.bmm(torch.softmax(torch.bmm(q, k.mT) / 8, -1), v)", (1, 1)),
        ("out = q.matmul(k.permute(0, 2, 1)).softmax(-1).matmul(v)", (1, 1)),
    ],
)
def test_it_is_known_by_its_products_and_its_softmax(text: str, lines: tuple[int, int]) -> None:
    assert found(text) == [(*lines, "q", "k", "v")]


@pytest.mark.parametrize(
    "text",
    [
        "p = (x @ table.T).softmax(-1)",  # a classifier's output, over a table of its own
        "y = (x @ w.T) @ v",  # no softmax
        "y = torch.softmax(x, -1) @ v",  # a mixture
        """\
        def forward(q, k, v):
            weights = (q @ k.mT).softmax(-1)
            return weights @ v, weights
        """,
        """\
        def forward(self, q, k, v):
            weights = (q @ k.mT).softmax(-1)
            self.seen.append(weights)
            return weights @ v
        """,
    ],
)
def test_what_is_none_or_gives_its_weights_away_is_not(text: str) -> None:
    assert found(text) == []
