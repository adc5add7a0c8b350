"""Trials of settings between steps: blocks of steps with a setting changed, as the sidecar asks for them one by one.

The sidecar has the diagnosis, chooses what to try, and compares; here a block is made, timed and taken back. A setting
is changed only inside of the user's ``with``, and taken back where that ends, however it ends: the script may never
come to another step. Between two blocks all is as the script has it.
"""

from __future__ import annotations

import gc
import json
import socket
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from perfdoctor.probes.inside.device_clock import FAULTS
from perfdoctor.probes.inside.ring import TREATABLE, RingWriter
from perfdoctor.probes.inside.switches import KINDS, Switches, replaced, users_line
from perfdoctor.probes.inside.training_loop import TrainingLoop
from perfdoctor.probes.treated.changes import shape_of
from perfdoctor.recording.clock import NS_PER_S

# A message is small but for the lengths of a block's steps.
MESSAGE_BYTES = 1 << 17
# What the sidecar needs for the diagnosis besides the budget. It ends the trials; this is for one that hangs.
PATIENCE_S = 120


class SettingTrials:
    """The trials of one session.

    Args:
        minutes: how long they may take; None for none.
        loop: whose steps are changed.
        ring: lets the sidecar know that the process waits for its orders.
    """

    def __init__(self, minutes: float | None, loop: TrainingLoop, ring: RingWriter) -> None:
        self._minutes = minutes
        self._loop = loop
        self._ring = ring
        self._channel: socket.socket | None = None
        self._block: TrialBlock | None = None
        self._census = Census()
        self._until_ns = self._last_ns = 0
        self._step_s = 0.0

    def far_end(self) -> int:
        """Opens the channel; returns the end that the sidecar is to inherit, -1 where nothing is to be tried."""
        if self._minutes is None:
            return -1
        self._channel, sidecars = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._channel.setblocking(False)
        return sidecars.detach()

    def begin(self, time_ns: int, step_s: float, step: int) -> bool:
        """Waits for orders from here on; returns whether there is a sidecar to give them."""
        if self._minutes is None or self._channel is None:
            return False
        self._until_ns = time_ns + round((60 * self._minutes + PATIENCE_S) * NS_PER_S)
        self._last_ns, self._step_s = time_ns, step_s
        self._census.begin()
        self._loop.on_enter, self._loop.on_leave = self._entered, self._left
        self._ring.finish(TREATABLE)
        return True

    def step_ended(self, time_ns: int, step: int) -> bool:
        """Goes on to the next step; returns whether all is over."""
        length, self._last_ns = time_ns - self._last_ns, time_ns
        if self._block is None:
            over = not self._obey()
        else:
            over = self._block.took(length) and not self._send(self._end_block())
        if over or time_ns > self._until_ns:
            self.end()
            return True
        return False

    def end(self) -> None:
        """Takes back whatever is changed, and takes no more orders; in a forked child as well."""
        self._census.end()
        self._loop.on_enter = self._loop.on_leave = None
        block, self._block = self._block, None
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()
        if block is not None:
            self._take_back(block)

    def _entered(self) -> None:
        if self._block is not None:
            self._block.switch_on()

    def _left(self) -> None:
        if self._block is not None:
            self._take_back(self._block)

    def _take_back(self, block: TrialBlock) -> None:
        try:
            block.switches.off()
        except FAULTS as error:
            why = f"{type(error).__name__}: {error}"[:200]
            self._ring.note(f"A setting that was tried could not be taken back: {why}.")

    def _obey(self) -> bool:
        """Takes an order if there is one; returns whether to go on."""
        assert self._channel is not None
        try:
            message = self._channel.recv(MESSAGE_BYTES)
        except BlockingIOError:
            return True
        except OSError:
            return False
        if not message:  # the sidecar has ended
            return False
        order = json.loads(message)
        if "block" not in order:
            return self._send({"facts": self._census.facts(), "step_s": self._step_s})
        self._census.end()
        self._block = TrialBlock(**order["block"])
        if self._loop.inside:
            self._block.switch_on()
        return True

    def _end_block(self) -> dict[str, Any]:
        block, self._block = self._block, None
        assert block is not None
        self._take_back(block)
        return {"lengths_ns": block.lengths_ns, "held": block.switches.held, "problem": block.problem}

    def _send(self, message: Mapping[str, Any]) -> bool:
        """Answers; returns whether somebody is there."""
        assert self._channel is not None
        try:
            self._channel.send(json.dumps(message).encode())
        except OSError:
            return False
        return True


class TrialBlock:
    """Some steps with settings changed.

    Args:
        settings: kind of change to its value.
        steps: how many.
        limit_s: after how long to end it anyway.

    Attributes:
        lengths_ns: of the steps so far.
        problem: why a setting could not be changed; "" if it could.
    """

    def __init__(self, settings: Mapping[str, Any], steps: int, limit_s: float) -> None:
        self.switches = Switches(settings)
        self.lengths_ns: list[int] = []
        self.problem = ""
        self._steps = steps
        self._left_ns = round(limit_s * NS_PER_S)

    def switch_on(self) -> None:
        """Changes the settings, unless that has failed before."""
        if self.problem:
            return
        try:
            self.switches.on()
        except FAULTS as error:
            self.problem = f"{type(error).__name__}: {error}"[:300]

    def took(self, length_ns: int) -> bool:
        """Counts a step; returns whether it was the last one."""
        self.lengths_ns.append(length_ns)
        self._left_ns -= length_ns
        return len(self.lengths_ns) >= self._steps or self._left_ns <= 0 or bool(self.problem)


class Census:
    """What the process makes and calls in some steps, as the start hook of `perfdoctor treat` reports it."""

    def __init__(self) -> None:
        self._facts: dict[str, dict[str, Any]] = {}
        self._undo: list[Callable[[], None]] = []

    def begin(self) -> None:
        """Observes from here on."""
        import torch
        from torch.optim.optimizer import register_optimizer_step_post_hook

        self._undo.append(register_optimizer_step_post_hook(self._stepped).remove)
        collect, enable = gc.collect, torch.set_anomaly_enabled

        def collected(*args: Any, **kwargs: Any) -> int:
            if line := users_line(sys._getframe(1)):
                file, _, number = line.rpartition(":")
                self._note("collect", file=file, line=int(number))
            return collect(*args, **kwargs)

        def enabled(mode: bool, *args: Any, **kwargs: Any) -> None:
            if mode:
                self._note("anomaly")
            enable(mode, *args, **kwargs)

        self._undo += [replaced(gc, "collect", collected), replaced(torch, "set_anomaly_enabled", enabled)]
        if torch.is_anomaly_enabled():
            self._note("anomaly")

    def end(self) -> None:
        """Observes no more."""
        while self._undo:
            self._undo.pop()()

    def facts(self) -> list[dict[str, Any]]:
        """What was seen, and which kinds of changes can be switched here."""
        import torch

        self._note("torch", version=torch.__version__, threads=torch.get_num_threads())
        self._note("switchable", kinds=sorted(_switchable()))
        return list(self._facts.values())

    def _note(self, kind: str, **values: Any) -> None:
        self._facts.setdefault(json.dumps([kind, values], default=str), {"kind": kind, **values})

    def _stepped(self, optimizer: Any, *_: Any) -> None:
        group = optimizer.param_groups[0]
        values = {name: group[name] for name in ("fused", "foreach") if name in group}
        tensors = [one for each in optimizer.param_groups for one in each["params"]]
        self._note(
            "optimizer", name=type(optimizer).__name__, options=sorted(values), values=values, **shape_of(tensors)
        )


def _switchable() -> set[str]:
    """Compiled code is made for the settings that it was compiled under, and would be compiled anew for others."""
    compiled = False
    with suppress(*FAULTS):
        counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", None)
        compiled = bool(counters and counters["frames"]["ok"])
    return {"gc", "collect_every"} if compiled else set(KINDS)
