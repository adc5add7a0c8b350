"""The rules engine: from a case to findings, and which cause comes first.

A file per family of causes; its ``RULES`` are taken in here. ``rule.py`` says what a rule is, ``case.py`` what it may
look at, ``health.py`` which faults of a machine make a cause dearer, ``verdict.py`` which cause comes first,
``stragglers.py`` which rank the others wait for, and ``confidence.py`` how sure that is.
"""

from perfdoctor.diagnosis import Finding, NotExamined
from perfdoctor.rules.activations import ACTIVATION_RULES
from perfdoctor.rules.arithmetic import ARITHMETIC_RULES
from perfdoctor.rules.case import Case
from perfdoctor.rules.communication import COMMUNICATION_RULES
from perfdoctor.rules.cores import CORE_RULES
from perfdoctor.rules.done_alone import with_done_alone
from perfdoctor.rules.evaluation import EVALUATION_RULES
from perfdoctor.rules.gpu import GPU_RULES
from perfdoctor.rules.gpu_idle import GPU_IDLE_RULES
from perfdoctor.rules.health import with_health
from perfdoctor.rules.input import INPUT_RULES
from perfdoctor.rules.interpreter import INTERPRETER_RULES
from perfdoctor.rules.io import IO_RULES
from perfdoctor.rules.rule import Rule
from perfdoctor.rules.users_rules import find_of_users

# Of several rules of a cause the first that applies is taken.
RULES: tuple[Rule, ...] = (
    *INPUT_RULES,
    *INTERPRETER_RULES,
    *EVALUATION_RULES,
    *GPU_IDLE_RULES,
    *CORE_RULES,
    *ARITHMETIC_RULES,
    *IO_RULES,
    *GPU_RULES,
    *ACTIVATION_RULES,
    *COMMUNICATION_RULES,
)


def find(case: Case) -> tuple[list[Finding], list[NotExamined]]:
    """Applies all rules, the users' included.

    Returns:
        The findings, largest share first, and each user's rule that is broken.
    """
    findings: dict[str, Finding] = {}
    for rule in RULES:
        if rule.cause not in findings and rule.applies(case) and (found := rule(case)) is not None:
            findings[found.cause] = with_done_alone(with_health(found, case), case)
    own, broken = find_of_users(case)
    return sorted([*findings.values(), *own], key=lambda found: -found.share), broken
