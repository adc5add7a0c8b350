"""A profiler of the job's own that was left on."""

from perfdoctor.diagnosis import Fix
from perfdoctor.reports.chinese.phrases import fix, percent


def record_few_steps(*, share: float) -> Fix:
    return fix(
        "让 torch.profiler 只记录几个训练步",
        f"整理和写出它所记录的内容占用 {percent(share)} 的时间；此外，记录每个算子还会拖慢所有训练步。",
    )
