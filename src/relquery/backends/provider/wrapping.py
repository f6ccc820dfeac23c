"""An answer's text without what models put around it: reasoning before it, a fence around it."""

from __future__ import annotations

import re

_OPENING = re.compile(r"\s*(?:<(think|thinking|thought|reasoning)>|\[(THINK)\])", re.IGNORECASE)
# Some chat templates open the block in the prompt: the answer then begins within it.
_OPENED_BEFORE = re.compile(r"(?:(?!<think>).)*?</think>", re.IGNORECASE | re.DOTALL)
_FENCED = re.compile(
    r"\s*(?P<fence>`{3,}|~{3,})(?:[\w+-]*\n)?(?P<text>.*?)(?P=fence)\s*", re.DOTALL
)


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
