"""What a trial on a batch in memory adds to a verdict."""


def confirmed(*, verdict: str, saved: float, more: bool) -> str:
    text = f"{verdict} A trial confirms it: on a batch kept in memory, a step took {saved:.0%} less."
    return f"{text} That is more, since making the input also slows down the rest." if more else text


def doubted(*, verdict: str, saved: float) -> str:
    less = f"{saved:.0%} less" if saved > 0 else "no less"
    return f"{verdict} But in a trial on a batch kept in memory, a step took {less} time."
