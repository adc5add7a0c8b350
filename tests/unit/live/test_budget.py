"""What a live view may use of the CPU."""

from perfdoctor.live.budget import AHEAD_S, BUDGET, EVERY_S, Throttle


class Machine:
    """A clock, and CPU time that is used."""

    def __init__(self) -> None:
        self.now_s = self.used_s = 100.0

    @property
    def share(self) -> float:
        """Of one core, what was used since it began."""
        return (self.used_s - 100.0) / (self.now_s - 100.0)

    def throttle(self) -> Throttle:
        return Throttle(lambda: self.now_s, lambda: self.used_s)


def test_a_diagnosis_waits_until_it_fits_into_the_budget() -> None:
    machine = Machine()
    throttle = machine.throttle()
    assert throttle.allows(AHEAD_S)
    assert not throttle.allows(AHEAD_S + 0.5)
    machine.now_s += 0.5 / BUDGET
    assert throttle.allows(AHEAD_S + 0.5)
    machine.used_s += 0.1
    assert not throttle.allows(AHEAD_S + 0.5)


def test_views_that_take_long_come_more_rarely() -> None:
    machine = Machine()
    throttle = machine.throttle()
    machine.used_s += 0.01
    assert throttle.until_next_view() == EVERY_S
    machine.used_s += 0.1
    assert throttle.until_next_view() > 2 * EVERY_S


def test_a_diagnosis_does_not_make_views_rarer() -> None:
    machine = Machine()
    throttle = machine.throttle()
    machine.used_s += 0.4
    throttle.diagnosed(0.39)
    assert throttle.until_next_view() == EVERY_S


def test_views_and_diagnoses_together_keep_to_the_budget() -> None:
    """Each view takes a tenth of a second, and each diagnosis a whole one."""
    machine = Machine()
    throttle = machine.throttle()
    for _ in range(500):
        machine.used_s += 0.1
        if throttle.allows(1.0):
            machine.used_s += 1.0
            throttle.diagnosed(1.0)
        machine.now_s += throttle.until_next_view()
    assert BUDGET / 2 < machine.share <= BUDGET * 1.01
