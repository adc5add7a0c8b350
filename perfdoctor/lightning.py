"""``diagnose()`` for Lightning's Trainer: ``Trainer(callbacks=[DiagnoseCallback()])``.

Works with ``lightning`` and with ``pytorch_lightning``. One step is one batch, as in Lightning's progress bar.
"""

from __future__ import annotations

import sys
from typing import Any

from perfdoctor.api import diagnose

try:
    # The one that the script uses; with none imported yet, either will do, since Trainers only call its methods.
    if "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules:
        from pytorch_lightning import Callback
    else:
        try:
            from lightning.pytorch import Callback
        except ImportError:
            from pytorch_lightning import Callback
except ImportError as error:
    raise ImportError("perfdoctor.lightning needs Lightning: pip install 'perfdoctor[lightning]'") from error


class DiagnoseCallback(Callback):  # type: ignore[misc]  # Lightning need not be there for mypy
    """Diagnoses ``trainer.fit``; the sanity check and validation are charged to no step.

    Args:
        arguments: those of ``perfdoctor.diagnose``.
    """

    def __init__(self, **arguments: Any) -> None:
        super().__init__()
        self._doctor = diagnose(**arguments)

    @property
    def diagnosis(self) -> dict[str, Any] | None:
        """The diagnosis, as the JSON report has it; None until it is there."""
        return self._doctor.diagnosis

    def on_train_start(self, trainer: object, pl_module: object) -> None:
        """The sanity check is over, and the first batch not yet asked for."""
        self._doctor.start()

    def on_train_batch_end(self, trainer: object, pl_module: object, *_: object, **__: object) -> None:
        """A step has ended."""
        self._doctor.step()

    def on_train_end(self, trainer: object, pl_module: object) -> None:
        """``fit`` may be called again later."""
        self._doctor.stop()

    def on_exception(self, trainer: object, pl_module: object, exception: BaseException) -> None:
        """``fit`` ends without ``on_train_end``."""
        self._doctor.stop()


__all__ = ["DiagnoseCallback"]
