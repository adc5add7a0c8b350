"""Stacks as py-spy saw them: calls in calls, however deep."""

from perfdoctor.recording.stack_changes import SeenStack


def test_a_stack_may_be_deeper_than_python_s_own() -> None:
    stack = empty = SeenStack(lambda file, function, line: line)
    for line in range(3000):
        stack = stack.begin("train.py", "walk", line)
    assert stack.frames == tuple(range(3000))
    assert stack.end().frames == tuple(range(2999))
    assert empty.frames == ()
