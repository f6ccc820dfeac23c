"""An answer's text without what is put around it (reasoning, a fence, an object to hold it), the
label that it is, and how likely each label was.

That is told by the probabilities of the answer's first token, which is the label's own where each
label begins with another token. What it says of a text with several tokens is not more than that.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from math import exp, inf, log
from typing import Any

MOST = 20
"""Likeliest tokens that are asked for."""
FEWER = 5
"""The same of a server that does not give so many."""
_SHARED = 0.01
"""What may go to tokens with which several labels begin, as a part of what goes to labels."""

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


def unicode_problem(text: str | None) -> str | None:
    """What is wrong with a text that cannot be written as UTF-8; None if nothing is."""
    try:
        if text is not None and not text.isascii():
            text.encode()
    except UnicodeEncodeError as error:
        return f"The answer is not valid Unicode: {error}."
    return None


def unfenced(text: str) -> str:
    """An answer that is one block of code, without the fence; any other as it is."""
    match = _FENCED.fullmatch(text)
    return text if match is None or match["fence"] in match["text"] else match["text"].strip()


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


def label_in(text: str, labels: tuple[str, ...]) -> str | None:
    """The choice that an answer is, in JSON, in a code fence, or as it stands; None if none."""
    for bare in (text, unfenced(text)):
        for candidate in (bare, _held_text(bare)):
            if candidate in labels:
                return candidate
        if (choice := {each.strip(): each for each in labels}.get(bare.strip())) is not None:
            return choice
    return None


def _held_text(text: str) -> str | None:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return None
    held = document.get("answer") if isinstance(document, dict) else None
    return held if isinstance(held, str) else None


def label_scores(logprobs: Any, labels: Sequence[str]) -> dict[str, float] | str:
    """Log-probability of each label among the labels, -inf if it is not among the likeliest
    tokens; or why that is not known.

    logprobs: see Reply.
    """
    likeliest = _likeliest(logprobs)
    if likeliest is None:
        return (
            "The server gave no token probabilities (logprobs), so the labels have no scores. "
            "Use a model that gives them, or the embedded engine."
        )
    weights, shared = dict.fromkeys(labels, 0.0), 0.0
    for token, probability in likeliest:
        begun = [label for label in labels if token and label.strip().startswith(token)]
        if len(begun) == 1:
            weights[begun[0]] += probability
        elif begun:
            shared += probability
    total = sum(weights.values())
    if shared > _SHARED * (total + shared):
        return "Several labels begin with the same token. Give labels that begin differently."
    if total == 0:
        said = ", ".join(repr(token) for token, _ in likeliest[:3])
        return f"No label is among the likeliest first tokens, which are {said}."
    return {label: log(weight / total) if weight > 0 else -inf for label, weight in weights.items()}


def _likeliest(logprobs: Any) -> list[tuple[str, float]] | None:
    """The first token's alternatives without white space, and their probabilities."""
    try:
        tops = logprobs[0]["top_logprobs"]
        return [(str(each["token"]).strip(), exp(min(0.0, each["logprob"]))) for each in tops]
    except (LookupError, TypeError):
        return None
