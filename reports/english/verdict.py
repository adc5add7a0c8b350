"""What a verdict says beside its finding, and why there is none."""


def most(*, cause: str) -> str:
    return f"Most of the time goes into {cause}."
