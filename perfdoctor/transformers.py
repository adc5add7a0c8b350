"""``diagnose()`` for the Hugging Face Trainer: ``Trainer(callbacks=[DiagnoseCallback()])``.

One step is one step of the optimizer, with all batches whose gradients it accumulates, as in the Trainer's progress
bar and its ``global_step``.
"""

from __future__ import annotations

from typing import Any

from perfdoctor.api import diagnose

try:
    from transformers import TrainerCallback
except ImportError as error:
    raise ImportError("perfdoctor.transformers needs transformers: pip install 'perfdoctor[transformers]'") from error


class DiagnoseCallback(TrainerCallback):  # type: ignore[misc]  # transformers need not be there for mypy
    """Diagnoses ``trainer.train``; evaluation is charged to no step.

    Args:
        arguments: those of ``perfdoctor.diagnose``.
    """

    def __init__(self, **arguments: Any) -> None:
        self._doctor = diagnose(**arguments)

    @property
    def diagnosis(self) -> dict[str, Any] | None:
        """The diagnosis, as the JSON report has it; None until it is there."""
        return self._doctor.diagnosis

    def on_train_begin(self, *_: object, **__: object) -> None:
        """Training begins; after an exception it may do so a second time."""
        self._doctor.start()

    def on_step_end(self, *_: object, **__: object) -> None:
        """The optimizer has made a step."""
        self._doctor.step()

    def on_train_end(self, *_: object, **__: object) -> None:
        """``train`` may be called again later."""
        self._doctor.stop()


__all__ = ["DiagnoseCallback"]
