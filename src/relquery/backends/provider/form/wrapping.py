"""An answer's text without what is put around it: reasoning, a fence, an object to hold it."""

from __future__ import annotations

import json
import re

_OPENING = re.compile(r"\s*(?:<(think|thinking|thought|reasoning)>|\[(THINK)\])", re.IGNORECASE)
# Some chat templates open the block in the prompt: the answer then begins within it.
_OPENED_BEFORE = re.compile(r"(?:(?!<think>).)*?</think>", re.IGNORECASE | re.DOTALL)
_FENCED = re.compile(
    r"\s*(?P<fence>`{3,}|~{3,})(?:[\w+-]*\n)?(?P<text>.*?)(?P=fence)\s*", re.DOTALL
)
_HELD = re.compile(r'\s*\{\s*"answer"\s*:\s*')


def without_reasoning(text: str) -> str | None:
    """What follows the blocks of reasoning at the beginning; None if one of them never ends.

    Blocks are <think>, <thinking>, <thought>, <reasoning> and [THINK]; elsewhere they are text.
    """
    while True:
        if opening := _OPENING.match(text):
            name = opening[1] or opening[2]
            end = re.compile(rf"</{name}>|\[/{name}\]", re.IGNORECASE)
            closing = end.search(text, opening.end())
            if closing is None:
                return None
        elif not (closing := _OPENED_BEFORE.match(text)):
            return text
        text = text[closing.end() :].lstrip()


def unfenced(text: str) -> str:
    """An answer that is one block of code, without the fence; any other as it is."""
    found = _FENCED.fullmatch(text)
    return text if found is None or found["fence"] in found["text"] else found["text"].strip()


def json_in(text: str, *, held: bool = False) -> str | None:
    """The JSON that an answer is, as it is written; None if it is no JSON.

    held: whether it is the value of "answer" in an object, without which it is taken as it is.
    """
    bare = unfenced(text).strip()
    opening = _HELD.match(bare) if held else None
    try:
        if opening is not None:
            _, end = _JSON.raw_decode(bare, opening.end())
            if bare[end:].strip() == "}":
                return bare[opening.end() : end]
        _JSON.decode(bare)
    except (ValueError, RecursionError):
        return None
    return bare


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


_JSON = json.JSONDecoder(parse_constant=_refuse, parse_int=str)
