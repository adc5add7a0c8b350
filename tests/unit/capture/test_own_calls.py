"""Calls in the job's own source: which are found, how they are written, and which of them feeds the loop."""

from textwrap import dedent

import pytest

from perfdoctor.capture.own_calls import WrittenCall, find_calls

SCRIPT = dedent(
    """\
    from torch.utils import data

    def main():
        train = data.DataLoader(
            dataset,
            batch_size=8,
        )
        valid = data.DataLoader(dataset)
        optimizer = torch.optim.Adam(model.parameters())
        for epoch in range(3):
            for step, batch in enumerate(train):
                loss = model(batch)
                loss.backward()
            for batch in valid:
                model(batch)
    """
).splitlines()


def found(lines: list[str], *longest: int) -> dict[int, WrittenCall]:
    return {call.line: call for call in find_calls(lines, longest)}


def test_the_statement_is_kept_as_it_is_written() -> None:
    calls = found(SCRIPT, 12)
    assert calls[4].text == "train = data.DataLoader(\n    dataset,\n    batch_size=8,\n)"
    assert {line: call.callee for line, call in calls.items()} == {4: "DataLoader", 8: "DataLoader", 9: "Adam"}


@pytest.mark.parametrize(("longest", "feeds"), [((13, 15), 4), ((15, 13), 8), ((9, 12), 4), ((9,), None)])
def test_the_loop_in_which_the_job_is_longest_tells_which_loader_feeds_it(
    longest: tuple[int, ...], feeds: int | None
) -> None:
    assert [line for line, call in found(SCRIPT, *longest).items() if call.feeds] == [feeds] * (feeds is not None)


def test_of_a_statement_that_holds_others_the_call_alone_is_kept() -> None:
    (call,) = find_calls(["for batch in DataLoader(dataset, 8):", "    train(batch)"], [2])
    assert call == WrittenCall(1, "DataLoader(dataset, 8)", "DataLoader", False)


def test_a_call_with_a_secret_in_it_is_left_out() -> None:
    assert found(['x = DataLoader(Bucket(token="hf_abcdefghijklmnopqrst"))', "y = DataLoader(z)"]).keys() == {2}


@pytest.mark.parametrize("lines", [["x = DataLoader("], ["\0"], ["x = " + "(" * 5000], ["-" * 90_000 + "1"]])
def test_what_is_no_python_has_none(lines: list[str]) -> None:
    assert not found(lines)


def test_calls_inside_of_calls_and_of_functions_are_found_once() -> None:
    lines = ["def loaders():", "    return wrap(DataLoader(a)), DataLoader(b)"]
    assert [call.text for call in find_calls(lines, [])] == ["return wrap(DataLoader(a)), DataLoader(b)"] * 2
