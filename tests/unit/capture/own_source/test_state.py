"""What a loop of the job's own source makes of what it changes itself."""

from textwrap import dedent

import pytest

from perfdoctor.capture.own_source.state import find_stateful
from perfdoctor.results.edits import parse


def found(body: str) -> list[int]:
    """Lines of a loop's body, from 1, that it makes of what it changes."""
    source = "import numpy as np, random\nwhile True:\n" + "\n".join(f"    {line}" for line in body.splitlines())
    return [one.line - 2 for one in find_stateful("job.py", parse(source))]


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        ("buffer.push(item)\nbatch = buffer.sample(256)", [1, 2]),
        ("batch = buffer.sample(256)\nbuffer.update(batch, errors)", [1, 2]),
        ("memory.append(item)\nbatch = random.sample(memory, 32)", [1, 2]),
        ("memory[at % size] = item\nbatch = [memory[one] for one in picked]", [1, 2]),
        ("self.replay.add(item)\nbatch: list = self.replay.draw()", [1, 2]),
        ("memory.append(item)\nagent.learn(memory)", [1, 2]),
        ("self.memory.append(item)\nlearn(agent, memory=self.memory)", [1, 2]),
        # What the answer to an agent's action is made of, the agent's learning changes.
        ("action = agent.act(seen)\nseen = env.step(action)\nagent.learn(seen)", [1, 2, 3]),
        ("self.first = made(buffer)\nbatch = self.second\nbuffer.push(item)", [1, 3]),
        # An order is no data.
        ("rng.shuffle(rows)\nbatch = draw(rows, rng)", []),
        ("sampler.set_epoch(epoch)\nbatch = next(sampler)", []),
        # Nothing of it is changed, it is made anew in each round, or a module's.
        ("batch = buffer.sample(256)\nlosses.append(loss)", []),
        ("parts = list(rows)\nparts.append(row)\nbatch = stack(parts)", []),
        ("np.random.shuffle(rows)\nbatch = np.stack(rows)", []),
        ("writer.add_scalar('loss', loss)\ntrain(model, loader, writer)", []),
        ("model.load_state_dict(mean)\ntrain(model, loader)", []),
        ("scheduler.step(loss)\ntrain(model, scheduler.rate)", []),
        ("optimizer.step()\nrate = optimizer.rate", []),
        ("def later():\n    memory.append(1)\nbatch = memory.pop()", []),
    ],
)
def test_what_a_loop_makes_of_what_it_changes(body: str, lines: list[int]) -> None:
    assert found(body) == lines


def test_a_loop_in_another_one_may_change_it() -> None:
    source = dedent(
        """
        def train():
            for epoch in range(9):
                for step in range(4):
                    replay.push(act())
                batch = replay.sample(64)
        """
    )
    assert [(one.line, one.last_line) for one in find_stateful("job.py", parse(source))] == [(5, 5), (6, 6)]
