"""Why an object is refused: the field, what is wrong with it and what to write instead.

Readers of objects raise InvalidObject; `refusal` makes one of msgspec's errors about types. Sources turn it into a
SourceFault (and add file and line) or count it. Nothing here decides what is valid.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

Path = tuple[str | int, ...]
"""Where in an object something stands: names of fields, keys of maps and positions in lists."""

_TYPES: Mapping[str, str] = {
    "str": "a string",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "a mapping",
    "null": "null",
}
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_MESSAGE = re.compile(r"(?P<what>.*?)(?: - at (?P<key>`key` in )?`\$(?P<path>.*)`)?", re.DOTALL)
_MISMATCH = re.compile(r"Expected `(?P<wanted>[^`]*)`, got `(?P<got>[^`]*)`")
_MISSING = re.compile(r"Object missing required field `(?P<field>[^`]*)`")
_BOUND = re.compile(r"Expected `int` (?P<sign>[<>]=) (?P<bound>-?\d+)")
_CHOICE = re.compile(r"Invalid enum value (?P<value>.*)", re.DOTALL)


class InvalidObject(ValueError):
    """An object of a known kind that cannot be used.

    ``path`` is the field at fault, ``cause`` what is wrong with it ("is ..., must be ..."), ``cure`` what to do.
    ``line`` counts from 1 within the field's text where that has a form of its own (the mesh configuration), else it
    is 0. ``subject`` ("Pod shop/cart-1") and ``key`` say which object it is, as far as that could be read; whoever
    knows the object fills them in.
    """

    def __init__(self, path: Path, cause: str, cure: str, line: int = 0) -> None:
        super().__init__(path, cause, cure, line)
        self.path = path
        self.cause = cause
        self.cure = cure
        self.line = line
        self.subject = ""
        self.key: tuple[str, str, str, str] | None = None

    def __str__(self) -> str:
        return ": ".join(filter(None, (self.subject, f"{field(self.path)} {self.cause}".lstrip())))


def field(path: Path) -> str:
    """A path as people write it: ``metadata.labels["app"]``, ``spec.ports[0].port``."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif _PLAIN.fullmatch(part):
            text += f".{part}" if text else part
        else:
            shown = part if len(part) <= 80 else f"{part[:77]}..."
            text += f'["{shown}"]'
    return text


def refusal(message: str, document: object, *, confidential: bool = False) -> InvalidObject:
    """The InvalidObject for an error of msgspec about a value's type; ``document`` is the object it spoke of.

    msgspec hides the keys of maps (``$.metadata.labels[...]``): the entry is found again by what is wrong with it. Of a
    document that is ``confidential`` no value is shown, only its type.
    """
    parts = _MESSAGE.fullmatch(message)
    if parts is None:
        return InvalidObject((), message, "correct the object")
    what = parts["what"]
    mismatch = _MISMATCH.fullmatch(what)
    bound, choice = _BOUND.fullmatch(what), _CHOICE.fullmatch(what)
    got = mismatch["got"] if mismatch else ""

    def at_fault(entry: object) -> bool:
        if bound is not None:
            return isinstance(entry, int) and not (
                entry <= int(bound["bound"]) if bound["sign"] == "<=" else entry >= int(bound["bound"])
            )
        return repr(entry) == choice["value"] if choice is not None else _fits(entry, got)

    path, value = _find(document, parts["path"] or "", at_fault)
    if mismatch and confidential:
        expected = _expected(mismatch["wanted"])
        return InvalidObject(path, f"is {_TYPES.get(got, got)}, must be {expected}", f"write {expected} there")
    if mismatch:
        return _mismatch(path, value, mismatch["wanted"], got)
    if missing := _MISSING.fullmatch(what):
        return InvalidObject((*path, missing["field"]), "is missing", "add it")
    if bound is not None:
        side = "at most" if bound["sign"] == "<=" else "at least"
        return InvalidObject(
            path, f"is {_shown(value)}, must be {side} {bound['bound']}", "use a port number from 1 to 65535"
        )
    if choice is not None:
        return InvalidObject(
            path, f"is {_shown(value)}, which this field cannot be", "use one of its documented values"
        )
    return InvalidObject(path, f"is not usable: {what}", "correct the field")


def _mismatch(path: Path, value: object, wanted: str, got: str) -> InvalidObject:
    wants = _wants(wanted)
    expected = _expected(wanted)
    if "str" in wants and got in ("bool", "int", "float"):
        cure = f'put it in quotes: "{_shown(value)}"'
    elif "int" in wants and isinstance(value, str) and value.isascii() and value.isdigit():
        cure = f"write it without quotes: {value}"
    elif wants == ["array"]:
        cure = "write a list: every entry begins with '- '"
    else:
        cure = f"write {expected} there"
    return InvalidObject(path, f"is {_shown(value)}, must be {expected}", cure)


def _wants(wanted: str) -> list[str]:
    return [name for name in wanted.split(" | ") if name != "null"]


def _expected(wanted: str) -> str:
    return " or ".join(_TYPES.get(name, name) for name in _wants(wanted))


def _find(document: object, rest: str, at_fault: Callable[[object], bool]) -> tuple[Path, object]:
    """The path and the value msgspec's path leads to in a document, as far as it can be followed.

    Of a map it is the first entry that is ``at_fault``.
    """
    path: list[str | int] = []
    value = document
    while rest:
        if rest.startswith("[...]"):
            rest = rest.removeprefix("[...]")
            if not isinstance(value, Mapping):
                break
            key = next((key for key, entry in value.items() if at_fault(entry)), None)
            if key is None:
                break
            path.append(str(key))
            value = value[key]
        elif rest.startswith("["):
            index, _, rest = rest[1:].partition("]")
            path.append(int(index))
            if not isinstance(value, Sequence) or int(index) >= len(value):
                return tuple(path), None
            value = value[int(index)]
        else:
            # A key may hold dots itself (annotations): the longest key of the document that fits is the one.
            rest = rest.removeprefix(".")
            keys = value.keys() if isinstance(value, Mapping) else ()
            fitting = [key for key in keys if rest == key or (rest.startswith(key) and rest[len(key)] in ".[")]
            key = max(fitting, key=len) if fitting else re.split(r"[.\[]", rest, maxsplit=1)[0]
            path.append(key)
            rest = rest[len(key) :]
            value = value.get(key) if isinstance(value, Mapping) else None
    return tuple(path), value


def _fits(value: object, got: str) -> bool:
    name = _type_name(value)
    # Whole numbers too large for it msgspec decodes as others.
    return name == got or {name, got} == {"int", "float"}


def _type_name(value: object) -> str:
    """The name msgspec gives to the type of a plain value."""
    if isinstance(value, bool):
        return "bool"
    if value is None:
        return "null"
    if isinstance(value, Mapping):
        return "object"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "array"
    names = {str: "str", int: "int", float: "float"}
    return names.get(type(value), type(value).__name__)


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "null"
    if not isinstance(value, str | int | float):
        return _TYPES.get(_type_name(value), "something else")
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
