"""What `perfdoctor explain` says beside its rows, which are in ``causes.py``."""

RESOURCES = {"cpu": "CPU", "io": "I/O", "gpu": "GPU", "communication": "Communication", None: "The rest"}
TITLES = {
    "looks_like": "Looks like",
    "helps": "What helps",
    "refuted": "What would prove it wrong",
    "named": "When it is named",
}


def refuted(*, what: str) -> str:
    return f"if {what}"


def healthy() -> str:
    return "A job that spends its time here has no bottleneck."


def named(*, share: str, generic: bool) -> str:
    gives_way = " It gives way to a specific cause that costs nearly as much." if generic else ""
    return f"It can be the bottleneck from {share} of the time on.{gives_way}"
