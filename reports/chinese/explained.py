"""What `perfdoctor explain` says beside its rows, which are in ``causes.py``."""

RESOURCES = {"cpu": "CPU", "io": "I/O", "gpu": "GPU", "communication": "通信", None: "其余"}
TITLES = {
    "looks_like": "容易与什么混淆",
    "helps": "什么有帮助",
    "refuted": "什么能证明它不对",
    "named": "何时会被指出",
}


def refuted(*, what: str) -> str:
    return f"如果{' ' if what[0].isascii() else ''}{what}"


def healthy() -> str:
    return "时间花在这里的作业没有瓶颈。"


def named(*, share: str, generic: bool) -> str:
    gives_way = "如果有代价相近的具体原因，则以那个原因为准。" if generic else ""
    return f"占时间的 {share} 以上时，它可以成为瓶颈。{gives_way}"
