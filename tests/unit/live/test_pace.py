"""What a live view may use of the CPU."""

from perfdoctor.live.pace import AHEAD_S, BUDGET, EVERY_S, Pace


class Machine:
    """A clock, and CPU time that is used."""

    def __init__(self) -> None:
        self.now_s = self.used_s = 100.0

    def pace(self) -> Pace:
        return Pace(lambda: self.now_s, lambda: self.used_s)


def test_a_diagnosis_waits_until_it_fits_into_the_budget() -> None:
    machine = Machine()
    pace = machine.pace()
    assert pace.allows(AHEAD_S)
    assert not pace.allows(AHEAD_S + 0.5)
    machine.now_s += 0.5 / BUDGET
    assert pace.allows(AHEAD_S + 0.5)
    machine.used_s += 0.1
    assert not pace.allows(AHEAD_S + 0.5)


def test_views_that_take_long_come_more_rarely() -> None:
    machine = Machine()
    pace = machine.pace()
    machine.used_s += 0.01
    assert pace.until_next_view() == EVERY_S
    machine.used_s += 0.1
    assert pace.until_next_view() > 2 * EVERY_S


def test_a_diagnosis_does_not_make_views_rarer() -> None:
    machine = Machine()
    pace = machine.pace()
    machine.used_s += 0.4
    pace.diagnosed(0.39)
    assert pace.until_next_view() == EVERY_S


def test_views_and_diagnoses_together_keep_to_the_budget() -> None:
    """Each view takes a tenth of a second, and each diagnosis a whole one."""
    machine = Machine()
    pace = machine.pace()
    for _ in range(500):
        machine.used_s += 0.1
        if pace.allows(1.0):
            machine.used_s += 1.0
            pace.diagnosed(1.0)
        machine.now_s += pace.until_next_view()
    assert BUDGET / 2 < pace.share <= BUDGET * 1.01
