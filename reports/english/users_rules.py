"""Rules of other packages."""


def failed(*, name: str, value: str, error: str, text: str) -> str:
    return f"The rule {name} ({value}) failed: {error}{f': {text}' if text else ''}."


def repair() -> str:
    return "Repair the package that provides it, or uninstall it."
