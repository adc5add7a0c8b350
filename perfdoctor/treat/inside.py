"""Trials from inside: settings of a running job that can change between its steps, in blocks of steps with and without.

``diagnose(treat=True)`` asks for them. The search is that of `perfdoctor treat`, with blocks in the place of runs. The
training process makes a block when it is asked to, and takes it back itself (``probes/inside/setting_trials.py``).
"""

from __future__ import annotations

import json
import math
import os
import random
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import accumulate
from typing import Any

import psutil

from perfdoctor.diagnosis import Diagnosis, NotExamined
from perfdoctor.knowledge import environment, thresholds
from perfdoctor.messages import say
from perfdoctor.probes.inside.setting_trials import MESSAGE_BYTES
from perfdoctor.results.treatment import Training, Treated, Trial
from perfdoctor.treat.outcome import control_of, in_order, trial_of
from perfdoctor.treat.run import RunChange, SeenRun
from perfdoctor.treat.search import Arm, Found, search
from perfdoctor.treat.situation import Situation, Treatment
from perfdoctor.treat.treatments import choose

# The lengths of so many steps fit into a message.
_MOST_STEPS = 5000
# So many blocks should fit into the budget.
_BLOCKS_WANTED = 60
# A block is longer than planned by up to this part of it, by chance: work that comes back every so many steps, as an
# evaluation does, would else fall into blocks of one kind only.
_LONGER = 0.5
# How long the training process is waited for beyond what its steps should take: between two of them it may evaluate.
_GRACE_S = 60.0
_POOL = {environment.POOL_THREADS, *environment.POOL_THREADS_TOO}


class JobGoneError(Exception):
    """The training process makes no more steps, or has closed its end."""


class StepLab:
    """Makes blocks of steps in the running job.

    Args:
        channel: to the training process.
        minutes: how long all of it may take.

    Attributes:
        budget_s: the same in seconds.
        steps: how many are measured in a block, at least.
        blocks: how many there were.
    """

    def __init__(self, channel: socket.socket, minutes: float) -> None:
        self.budget_s = 60 * minutes
        self.steps = 0
        self.blocks = 0
        self._channel = channel
        self._began = time.monotonic()
        self._pace_s = 0.0
        self._random = random.Random(0)

    def facts(self) -> list[dict[str, Any]]:
        """What the job makes and calls; from here on it is known how long a block is.

        Raises:
            JobGoneError: there is no answer.
        """
        answer = self._ask({"facts": True}, self.left_s())
        self._pace_s = answer["step_s"]
        block_s = min(max(self.budget_s / _BLOCKS_WANTED, thresholds.SHORTEST_BLOCK_S), thresholds.TRIAL_S)
        most = _MOST_STEPS / (1 + _LONGER) - thresholds.SWITCHING_STEPS
        self.steps = int(min(max(thresholds.TRIAL_STEPS, math.ceil(block_s / self._pace_s)), most))
        return [_from_here(fact) for fact in answer["facts"]]

    def run(self, change: RunChange, name: str, *, slow_start: bool = False) -> SeenRun:
        """Makes a block.

        Raises:
            JobGoneError: it does not end.
        """
        self.blocks += 1
        first = int(thresholds.SWITCHING_STEPS)
        steps = first + round(self.steps * self._random.uniform(1, 1 + _LONGER))
        limit_s = thresholds.MUCH_SLOWER * steps * self._pace_s
        order = {"settings": dict(change.settings), "steps": steps, "limit_s": limit_s}
        answer = self._ask({"block": order}, limit_s)
        memory = psutil.virtual_memory()
        run = SeenRun(0, list(accumulate(answer["lengths_ns"], initial=0)), step_is="step", first=first)
        run.facts = [{"kind": "applied", "change": kind} for kind in answer["held"]]
        run.memory_left = memory.available / memory.total
        if answer["problem"]:
            run.failure = answer["problem"]
        elif len(run.times()) < first + thresholds.FEWEST_TRIAL_STEPS:
            run.failure = say("treat.few_steps", steps=len(run.times()), ended=False)
        return run

    def left_s(self) -> float:
        """Seconds of the budget that are left."""
        return self._began + self.budget_s - time.monotonic()

    def run_s(self) -> float:
        """Seconds that a block takes."""
        return (thresholds.SWITCHING_STEPS + 1 + self.steps * (1 + _LONGER / 2)) * self._pace_s

    def _ask(self, question: Mapping[str, Any], within_s: float) -> dict[str, Any]:
        try:
            self._channel.settimeout(max(within_s, 0.0) + _GRACE_S)
            self._channel.send(json.dumps(question).encode())
            answer = self._channel.recv(MESSAGE_BYTES)
        except OSError:
            raise JobGoneError from None
        if not answer:
            raise JobGoneError
        return dict(json.loads(answer))


def treat_inside(
    diagnosis: Diagnosis, channel: socket.socket, minutes: float, announce: Callable[[int], None], *, exact: bool
) -> Treated | NotExamined:
    """Tries what may help, as far as the job's steps and the budget go.

    Args:
        diagnosis: of the job as it is.
        channel: to the training process, which goes on as it was when this is closed.
        minutes: how long all of it may take.
        announce: gets how many changes will be tried, before the first is.
        exact: only changes that leave every bit of the training as it is.

    Returns:
        What came of it, or why nothing can be tried in this job.
    """
    if max(len(diagnosis.ranks), int(diagnosis.job.get("world_size") or 1)) > 1:
        return NotExamined("treat", say("treat.several_ranks"), "perfdoctor treat -- COMMAND")
    lab, found, interrupted = StepLab(channel, minutes), Found(), False
    try:
        situation = Situation(diagnosis, lab.facts(), os.environ)
    except JobGoneError:
        return NotExamined("treat", say("treat.not_waiting"), "perfdoctor treat -- COMMAND")
    chosen = _chosen(situation)
    wanted = [one for one in chosen if one.exact or not exact]
    found.arms = [_arm(one, found) for one in wanted]
    announce(len(wanted))
    try:
        if wanted:
            search(found, lab)
    except JobGoneError:
        interrupted = True
    unfinished = say("treat.interrupted") if interrupted else say("treat.no_time", needed=2 * lab.run_s())

    def trial(arm: Arm) -> Trial:
        training = Training.UNTOUCHED if all(one.exact for one in arm.treatments) else Training.ROUNDED
        return replace(trial_of(arm, situation, unfinished), training=training, memory_bytes=None)

    first = int(thresholds.SWITCHING_STEPS)
    return Treated(
        diagnosis=diagnosis,
        command=(str(diagnosis.job.get("command", "")),),
        control=control_of(found.controls, first, lab.steps) if found.controls else None,
        trials=in_order([trial(arm) for arm in found.arms]),
        combined=tuple(map(trial, found.combined)),
        best=trial(found.best) if found.best else None,
        spent={"seconds": round(lab.budget_s - lab.left_s(), 1), "budget_s": lab.budget_s, "runs": lab.blocks},
        interrupted=interrupted,
        inside=True,
        by_hand=situation.by_hand(chosen),
        not_asked=tuple(trial(_arm(one, found)) for one in chosen if one not in wanted),
    )


def _chosen(situation: Situation) -> list[Treatment]:
    """What is worth a trial, and can be switched in this job."""
    kinds = {kind for fact in situation.all("switchable") for kind in fact["kinds"]}
    chosen = [one for one in choose(situation) if _can_be_switched(one.change, kinds)]
    return [replace(one, change=RunChange(one.change.settings)) for one in chosen]


def _can_be_switched(change: RunChange, kinds: set[str]) -> bool:
    """Whether a change can be made between steps; variables for processes that start later are left out."""
    return bool(change.settings) and set(change.settings) <= kinds and set(change.variables) <= _POOL


def _arm(treatment: Treatment, found: Found) -> Arm:
    return Arm((treatment,), treatment.change, found.controls, patient=True)


def _from_here(fact: dict[str, Any]) -> dict[str, Any]:
    """A fact with its file as seen from the job's folder, where that is shorter."""
    if "file" not in fact:
        return fact
    return {**fact, "file": min(os.path.relpath(fact["file"]), fact["file"], key=len)}
