"""The name by which users' rules knew ``perfdoctor.rules.case.Case`` at first."""

from perfdoctor.rules.case import Case as Facts
from perfdoctor.rules.case import Trainer

__all__ = ["Facts", "Trainer"]
