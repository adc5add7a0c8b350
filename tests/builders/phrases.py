"""Plain English texts as the source makes them, for the tests of phrasebooks."""

import ast
import html
import re
from collections.abc import Iterator, Mapping

from tests.unit.project.sources import Module, modules

# What makes them, and where among its arguments they stand.
_MAKERS = {"Refusal": (0, 1), "Unavailable": (1, 2), "NotExamined": (1, 2), "Availability": (2, 3)}
_OPEN = "{}"
# Three plain words or more, one after another: names, paths and options have other characters in or around them.
_HAN = "\u4e00-\u9fff"
# A mark after a Han letter, or after what ends like a Chinese sentence, and one before a Han letter.
_ASCII_MARK = re.compile(
    rf"[{_HAN}\u3002\uff0c\uff1b\uff1a\uff09] ?[,;:.!?()](?![\w/])"
    rf"|[,;:!?(] ?[{_HAN}]|[{_HAN}] [(]|(?<![\d.])[.] [{_HAN}]"
)
_NO_TEXT = re.compile(r"<(script|style|pre|code)\b.*?</\1>", re.DOTALL)
_INLINE, _TAG = re.compile(r"</?(?:b|a|span)\b[^>]*>"), re.compile(r"<[^>]+>")
_ATTRIBUTE = re.compile(r'(?:aria-label|title|data-label)="([^"]*)"')
_ENGLISH = re.compile(r"(?<![\w./`=-])(?:[A-Za-z][a-z]+,? ){2,}[a-z]+(?![\w./=(])")


def english_runs(text: str) -> list[str]:
    """English that is left in a Chinese text."""
    return _ENGLISH.findall(text)


def ascii_marks(text: str) -> list[str]:
    """ASCII punctuation that is left beside Han letters, each with what stands around it; a page loses its tags."""
    plain = _TAG.sub("\n", _INLINE.sub("", _NO_TEXT.sub("\n", text))) + "\n" + "\n".join(_ATTRIBUTE.findall(text))
    plain = html.unescape(plain)
    return [plain[max(0, found.start() - 20) : found.end() + 20].strip() for found in _ASCII_MARK.finditer(plain)]


def reasons() -> dict[str, str]:
    """Why something could not be seen and what enables it, ``{}`` for what differs, with the file that says it."""
    found: dict[str, str] = {}
    for module in modules().values():
        names = _assigned(module)
        for call in ast.walk(module.tree):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in _MAKERS:
                for place in _MAKERS[call.func.id]:
                    for text in _texts(call.args[place], names) if place < len(call.args) else ():
                        found.setdefault(text, module.path.as_posix())
    return found


def _assigned(module: Module) -> dict[str, list[ast.expr]]:
    """What names of a module stand for, wherever they are assigned."""
    found: dict[str, list[ast.expr]] = {}
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    found.setdefault(target.id, []).append(node.value)
    return found


def _texts(node: ast.expr, names: Mapping[str, list[ast.expr]]) -> Iterator[str]:
    """The texts that an expression may be; none of one that is made elsewhere."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else _OPEN for part in node.values)
    elif isinstance(node, ast.IfExp):
        yield from _texts(node.body, names)
        yield from _texts(node.orelse, names)
    elif isinstance(node, ast.Name) and node.id in names:
        others = {name: values for name, values in names.items() if name != node.id}
        for value in names[node.id]:
            yield from _texts(value, others)
