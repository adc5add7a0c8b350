"""What fixes bring after which no gradients are computed that nobody uses."""

from __future__ import annotations

from dataclasses import replace

from perfdoctor.rules.proposed import Gain, Proposed


def by_freezing(fix: Proposed) -> Gain | None:
    """Most of the backward pass, if what is trained is at the end of the model; next to nothing if at its beginning.

    Of one that took half of the time three quarters went (measured, convolutions with a linear layer that is trained).
    """
    if fix["backward"] is None:
        return None
    backward = fix.worked(fix["backward"])
    return Gain(0.0, 0.75 * backward, backward)


def without_gradients(fix: Proposed) -> Gain | None:
    """What the backward pass takes for a part of the forward pass: as much of it as that is of the forward pass.

    Or half as much again, where that part's layers are dearer backwards than the others (measured: 0.31 for 0.20); but
    the others keep half of theirs at least.
    """
    forward = fix.case.phase("forward") + fix.case.phase("loss")
    if fix["part"] is None or not forward:
        return None
    whole = fix.worked(fix.case.phase("backward"))
    backward = min(1.0, fix["part"] / forward) * whole
    return Gain(backward / 2, backward, min(1.5 * backward, (backward + whole) / 2))


def without_training(fix: Proposed) -> Gain | None:
    """The same of a module that nobody trains, and of its forward pass what is kept for the backward pass.

    Measured: of convolutions 0.33 to 0.39 of the CPU time went where 0.36 was to be expected; of a transformer, which
    torch evaluates in another way where no parameter asks for gradients, 0.59 where 0.34 was.
    """
    gain = without_gradients(fix)
    return None if gain is None else replace(gain, most=gain.most + fix.worked(fix["part"]) / 2)
