"""A window is begun when there is enough for it, and never so many that the mean exceeds the budget."""

from perfdoctor.monitor.budget import AHEAD_S, BUDGET, Budget


class Machine:
    """A clock, and CPU time that somebody uses."""

    def __init__(self) -> None:
        self.now_s = self.used_s = 0.0

    def budget(self) -> Budget:
        return Budget(BUDGET, lambda: self.now_s, lambda: self.used_s)


def windows(machine: Machine, budget: Budget, *, seconds: int, cost_s: float, urgent: bool) -> int:
    """As many as are allowed, asked for each second."""
    made = 0
    for _ in range(seconds):
        machine.now_s += 1
        machine.used_s += 0.002  # what goes on all the time
        if budget.allows(urgent=urgent):
            machine.used_s += cost_s
            budget.costs(cost_s)
            made += 1
    return made


def test_whatever_a_window_costs_a_day_keeps_the_budget() -> None:
    for cost_s in (0.5, 1.5, 20.0):
        machine = Machine()
        made = windows(machine, machine.budget(), seconds=86_400, cost_s=cost_s, urgent=True)
        assert made > 10
        assert machine.used_s <= BUDGET * 86_400 + AHEAD_S + cost_s


def test_what_is_saved_is_no_burst() -> None:
    machine = Machine()
    budget = machine.budget()
    machine.now_s = 86_400
    assert windows(machine, budget, seconds=60, cost_s=1.5, urgent=True) <= 6


def test_one_that_is_not_urgent_leaves_enough_for_one_that_is() -> None:
    machine = Machine()
    budget = machine.budget()
    windows(machine, budget, seconds=3600, cost_s=1.5, urgent=False)
    assert not budget.allows(urgent=False)
    assert budget.allows(urgent=True)
