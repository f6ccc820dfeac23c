"""The grammar of answers that may call functions, in llguidance's Lark syntax.

Text is anything without the tag with which calls begin. The arguments of a call follow the
function's schema. A tag that is one token of the model's is that token.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping

from relquery.tools import CallForm, ToolUse

_SPACED = {"item_separator": ", ", "key_separator": ": ", "whitespace_flexible": False}
"""As chat templates write JSON."""
_ANY = "/(?s:.*)/"


def lark_of(
    use: ToolUse,
    form: CallForm,
    tokens: Mapping[str, int],
    free: Collection[int],
    written: Callable[[str], str],
) -> str:
    """The grammar of an answer. tokens: ids of those that stand for a text as a whole. free: those
    of them that may be in a text. written: gives the schema that is followed in place of one."""
    literal = Literals(tokens)
    ids = sorted(set(free) - literal.ids_in(form))
    lead = f"(TEXT <[{','.join(map(str, ids))}]>)* " if ids else ""
    texts = f"{lead}TEXT"
    tag = form.tag
    taken = f"(?s:.*){_regex(tag)}(?s:.*)" if tag else f"{_regex(form.opening)}(?s:.*)"
    rules = [f"TEXT: {_ANY} & ~/{taken}/"]
    if not use.callable:
        return "\n".join([f"start: {texts}", *rules])
    calls = []
    for number, function in enumerate(use.callable):
        schema = json.loads(written(function.parameters)) | {"x-guidance": _SPACED}
        name = literal.of(function.name + form.middle)
        rules += [
            f"call{number}: {name} arguments{number} {literal.of(form.end)}",
            f"arguments{number}: %json {json.dumps(schema)}",
        ]
        calls.append(f"call{number}")
    rules.append(f"call: {' | '.join(calls)}")
    many = "call"
    if use.parallel and not use.is_named and form.between is not None:
        many += f" ({literal.of(form.between + form.begin)} call)*"
    many += f" {literal.of(form.tail)}"
    opened = f"{literal.of(form.opening)} {many}"
    if use.choice != "auto":
        return "\n".join([f"start: {opened}", *rules])
    if tag in tokens:
        start = f"{texts} | {texts} {opened}"
    elif tag:
        rules.append(f"tag[lazy]: /(?s:.*){_regex(tag)}/")
        start = f"{lead}(TEXT | tag {literal.of(form.opening[len(tag) :])} {many})"
    else:
        start = f"{texts} | {opened}"
    return "\n".join([f"start: {start}", *rules])


class Literals:
    """Texts as a grammar writes them: what is a token of the model's is that token."""

    def __init__(self, tokens: Mapping[str, int]) -> None:
        self._tokens = tokens
        longest = sorted(map(re.escape, tokens), key=len, reverse=True)
        self._split = re.compile(f"({'|'.join(longest)})") if longest else None

    def of(self, text: str) -> str:
        """The text as a sequence."""
        return " ".join(
            f"<[{self._tokens[part]}]>" if part in self._tokens else json.dumps(part)
            for part in self._parts(text)
        )

    def ids_in(self, form: CallForm) -> set[int]:
        """The tokens that calls have."""
        text = "".join((form.opening, form.middle, form.end, form.between or "", form.tail))
        return {self._tokens[part] for part in self._parts(text) if part in self._tokens}

    def _parts(self, text: str) -> list[str]:
        parts = self._split.split(text) if self._split else [text]
        return [part for part in parts if part]


def _regex(text: str) -> str:
    """A pattern of this text."""
    return re.sub(r"[^\w\s]", lambda found: rf"\x{ord(found[0]):02x}", text).replace("\n", r"\n")
