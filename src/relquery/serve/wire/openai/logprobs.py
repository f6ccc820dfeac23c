"""Log-probabilities of answer tokens, in the forms of chat and of plain completions.

Tokens that are no whole characters are shown with a replacement character; chat also has their
bytes. All tokens that were drawn are told of, also those of a stop string that ended the answer.
"""

from __future__ import annotations

from codecs import getincrementaldecoder
from collections.abc import Iterable, Sequence
from typing import Any

from relquery.prompt import Answer, TokenLogprob
from relquery.serve.flow import Part
from relquery.serve.spelling import Spelling

LEAST = -9999.0
"""In place of the logarithm of 0, which JSON cannot tell."""


def told_by(parts: Iterable[Part]) -> list[TokenLogprob]:
    """The log-probabilities that pieces have."""
    return [each for part in parts if part.piece is not None for each in part.piece.logprobs or ()]


def told_of(answers: Iterable[Answer]) -> list[TokenLogprob]:
    """The log-probabilities of answers."""
    return [each for answer in answers for each in answer.logprobs or ()]


def for_chat(told: Sequence[TokenLogprob], spelling: Spelling) -> dict[str, Any]:
    """`logprobs` of a chat completion's choice. All tokens are learned."""
    content = [
        _entry(each.token, each.logprob, spelling)
        | {"top_logprobs": [_entry(token, log, spelling) for token, log in each.top]}
        for each in told
    ]
    return {"content": content, "refusal": None}


class PlainLogprobs:
    """`logprobs` of one choice of a plain completion, part by part. All tokens are learned."""

    def __init__(self, spelling: Spelling) -> None:
        self._spelling = spelling
        self._characters = getincrementaldecoder("utf-8")(errors="replace")
        self._offset = 0

    def shown(self, told: Sequence[TokenLogprob]) -> dict[str, Any]:
        """Of the next tokens. Their offsets are in characters of the choice's text."""
        offsets = []
        for each in told:
            offsets.append(self._offset)
            self._offset += len(self._characters.decode(self._spelling[each.token]))
        return {
            "tokens": [self._text(each.token) for each in told],
            "token_logprobs": [max(each.logprob, LEAST) for each in told],
            "top_logprobs": [
                {self._text(token): max(log, LEAST) for token, log in reversed(each.top)}
                for each in told
            ],
            "text_offset": offsets,
        }

    def _text(self, token: int) -> str:
        return self._spelling[token].decode(errors="replace")


def _entry(token: int, log: float, spelling: Spelling) -> dict[str, Any]:
    spelt = spelling[token]
    return {
        "token": spelt.decode(errors="replace"),
        "logprob": max(log, LEAST),
        "bytes": list(spelt),
    }
