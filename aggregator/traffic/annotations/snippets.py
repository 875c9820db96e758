"""configuration-snippet: the few directives of nginx in it that have a meaning here, where the operator lets them.

    more_set_headers "Name: value";  more_clear_headers Name;  add_header Name value;     of answers
    proxy_set_header Name value;     more_set_input_headers "Name: value";                of requests
    return 403;                      return 301 https://to.example;                       in place of a backend

Values are taken as they are, so one with a variable is refused. Each directive that is refused is told, and the others
count. Off by default (--ingress-snippets): whoever may write an Ingress may then say all of this.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import msgspec

from aggregator.traffic.annotations.expressions import header_value, own_header_name
from aggregator.traffic.annotations.given import Given, Refused
from aggregator.traffic.annotations.headers import MOST, Changes, Headers
from aggregator.traffic.annotations.redirects import Elsewhere, place, status

SNIPPET: Final = "configuration-snippet"

_TOKEN: Final = re.compile(
    r"""[ \t\r\n]+|\#[^\n]*|(?P<end>[;{}])|(?P<word>[^ \t\r\n;{}"'#]+)"""
    r"""|(?P<quoted>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')""",
    re.DOTALL,
)


class Snippet(msgspec.Struct, frozen=True, gc=False):
    """What the directives come to: changes of headers, and a redirect or the status of an answer (0: none)."""

    headers: Headers
    elsewhere: Elsewhere | None = None
    answer: int = 0


class _Read:
    """What has been read of a snippet so far."""

    def __init__(self) -> None:
        self.removed: dict[str, list[str]] = {"request": [], "response": []}
        self.added: dict[str, list[tuple[str, str]]] = {"request": [], "response": []}
        self.put: dict[str, list[tuple[str, str]]] = {"request": [], "response": []}
        self.elsewhere: Elsewhere | None = None
        self.answer = 0

    def set(self, what: str, name: str, value: str) -> None:
        """Sets a header, or removes it if the value is empty, as nginx does."""
        name = own_header_name(name)
        if value:
            self.put[what].append((name, _plain(value)))
        else:
            self.removed[what].append(name)

    def changes(self, what: str) -> Changes:
        return Changes(tuple(self.removed[what]), tuple(self.added[what]), tuple(self.put[what]))


def snippet(given: Given) -> Snippet | None:
    """What an Ingress says by its snippet; None without one. What is refused of it stands in `given`."""
    text = given.value(SNIPPET, str, "")
    if not text:
        return None
    read = _Read()
    for number, words in enumerate(_directives(text)):
        try:
            if number == MOST:
                raise Refused(f"is one of more than {MOST}")
            directive = _DIRECTIVES.get(words[0])
            if directive is None:
                raise Refused("is not among those that are understood")
            directive(read, words[1:])
        except Refused as error:
            given.refuse(SNIPPET, f"has {words[0][:40]!r}, which {error}", "AnnotationUnsupported")
            if number == MOST:
                break
    return Snippet(Headers(read.changes("request"), read.changes("response")), read.elsewhere, read.answer)


def _directives(text: str) -> Iterator[list[str]]:
    """The words of each directive; a block is one directive, whatever is in it."""
    words: list[str] = []
    depth = position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            yield ["..."]  # a quote that does not end
            return
        position = match.end()
        if match["end"] == "{":
            depth += 1
        elif match["end"] == "}":
            depth -= 1
        if depth < 0:
            yield ["}"]
            return
        if not depth and match["end"]:
            if words:
                yield ["a block of " + words[0]] if match["end"] == "}" else words
            words = []
        elif not depth or not words:
            if match["quoted"]:
                words.append(re.sub(r"\\(.)", r"\1", match["quoted"][1:-1]))
            elif match["word"]:
                words.append(match["word"])
    if words:
        yield words


def _plain(value: str) -> str:
    if "$" in value:
        raise Refused("has a variable")
    return header_value(value)


def _fields(words: list[str]) -> Iterator[tuple[str, str]]:
    """Names and values of arguments such as `Name: value`."""
    if not words or any(word.startswith("-") for word in words):
        raise Refused("has options, or nothing to set")
    for word in words:
        name, _, value = word.partition(":")
        yield name.strip(), value.strip()


def _set_response(read: _Read, words: list[str]) -> None:
    for name, value in list(_fields(words)):
        read.set("response", name, value)


def _set_request(read: _Read, words: list[str]) -> None:
    for name, value in list(_fields(words)):
        read.set("request", name, value)


def _clear_response(read: _Read, words: list[str]) -> None:
    for name, _ in list(_fields(words)):
        read.set("response", name, "")


def _add_response(read: _Read, words: list[str]) -> None:
    if len(words) not in (2, 3) or words[2:] not in ([], ["always"]):
        raise Refused("has not a name and a value")
    read.added["response"].append((own_header_name(words[0]), _plain(words[1])))


def _proxy_set(read: _Read, words: list[str]) -> None:
    if len(words) != 2:
        raise Refused("has not a name and a value")
    read.set("request", words[0], words[1])


def _return(read: _Read, words: list[str]) -> None:
    if read.answer or read.elsewhere is not None:
        return  # the first ends it
    if len(words) == 2:
        found = place(words[1])
        read.elsewhere = msgspec.structs.replace(found, status=status(words[0])) if found is not None else None
    elif len(words) == 1 and re.fullmatch(r"200|204|4[0-9]{2}|5[0-9]{2}", words[0], re.ASCII):
        read.answer = int(words[0])
    else:
        raise Refused("has not a status of its own, or one of a redirect and a URL")


_DIRECTIVES: Final[Mapping[str, Callable[[_Read, list[str]], None]]] = {
    "more_set_headers": _set_response,
    "more_set_input_headers": _set_request,
    "more_clear_headers": _clear_response,
    "add_header": _add_response,
    "proxy_set_header": _proxy_set,
    "return": _return,
}
