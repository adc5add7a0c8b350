"""Placeholder until the study is done."""


def classify(image: str, symbol: str) -> str:
    """Tells the class of a sample."""
    if image.startswith(("libpython", "python")):
        return "interpreter"
    return "kernel"
