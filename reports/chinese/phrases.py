"""Numbers, counts and phrases as several findings write them; no messages."""

from perfdoctor.diagnosis import Evidence, Fix
from perfdoctor.reports.chinese.labels import unit


def fix(title: str, why: str, change: str = "") -> Fix:
    """A fix; without a change of its own it gets the English one's, which is code."""
    return Fix(title, why, change)


def percent(share: float) -> str:
    """A fraction for people: ``37%``."""
    return f"{100 * share:.0f}%" if share >= 0.01 or share == 0 else "不到 1%"


def amount(measured: Evidence) -> str:
    """A measured number with its unit, ``439 MB/s``."""
    value, called = measured.value, unit(unit=measured.unit, one=False)
    if isinstance(value, (int, float)):
        value = f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return f"{value}{'' if not called else called if called.startswith('/') else ' ' + called}"


def then(sentence: str | None) -> str:
    """A sentence that follows another one; nothing where there is none."""
    return sentence or ""


def blocks_run_again(again: float, used: float | None, memory: str, *, full: bool) -> str:
    """What checkpointed blocks take, and how much room some memory has for what they would keep."""
    if used is None:
        room = f"没有看到还剩多少{memory}：请先检查，因为保留激活需要{memory}。"
    elif full:
        room = f"{memory}已用 {percent(used)}，所以放不下全部激活。"
    else:
        room = f"还有 {percent(1 - used)} 的{memory}可用于保留激活。"
    return f"做激活重计算的模块会在反向传播中再跑一遍前向传播：占 {percent(again)} 的时间。{room}"
