"""Answers as text, piece by piece, while they are drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from relquery.prompt import Answer, TokenLogprob

Spell = Callable[[list[int]], str]
"""The text that further tokens of an answer add; what is not yet whole comes with later ones."""


class Begun(NamedTuple):
    """What is known of a prompt once its answer has begun. For the fields see Answer."""

    prompt_tokens: int
    cached_tokens: int
    kept: tuple[int, ...]


class Piece(NamedTuple):
    """A part of an answer. All pieces of an answer, joined, are its text.

    text: may be empty. tokens: ids drawn since the piece before. logprobs: of each of them; None
    where they were not asked for. begun: of the first piece; None in those after it.
    """

    text: str
    tokens: tuple[int, ...]
    logprobs: tuple[TokenLogprob, ...] | None = None
    begun: Begun | None = None


@dataclass(slots=True)
class TextStream:
    """The text of one answer that can no longer change.

    begun: what the first piece says of the prompt. spell: of this answer alone; None where only the
    whole answer has a text. stop: strings that end the answer and are cut from it: what may be the
    beginning of one is held back.
    """

    begun: Callable[[], Begun]
    spell: Spell | None
    stop: Sequence[str] = ()
    _begins: bool = True
    _seen: int = 0
    _told: int = 0  # tokens that pieces have told of
    _sent: int = 0  # characters
    _held: str = ""

    def take(
        self, output: list[int], logprobs: Sequence[TokenLogprob] | None = None
    ) -> Piece | None:
        """What is new in an answer's tokens so far; None if nothing is. logprobs: of the output."""
        if len(output) == self._seen:
            return None
        new = output[self._seen :]
        self._seen = len(output)
        text = "" if self.spell is None else self.spell(new)
        if self.stop and self.spell is not None:
            text = self._held + text
            kept = _may_begin(text, self.stop)
            text, self._held = text[: len(text) - kept], text[len(text) - kept :]
        if not text:
            return None
        return self._piece(text, output, logprobs)

    def end(self, answer: Answer) -> Piece | None:
        """The rest of an answer that has ended; None if all of it was told."""
        text = (answer.text or "")[self._sent :]
        tokens = list(answer.tokens or ())
        if not text and len(tokens) <= self._told:
            return None
        return self._piece(text, tokens, answer.logprobs)

    def _piece(
        self, text: str, output: list[int], logprobs: Sequence[TokenLogprob] | None
    ) -> Piece:
        tokens = tuple(output[self._told :])
        new = None if logprobs is None else tuple(logprobs[self._told :])
        self._told = len(output)
        self._sent += len(text)
        begun = self.begun() if self._begins else None
        self._begins = False
        return Piece(text, tokens, new, begun)


def _may_begin(text: str, stops: Sequence[str]) -> int:
    """How many characters at a text's end may begin a stop string, or are part of one."""
    most = 0
    for stop in stops:
        at = text.find(stop)
        if at >= 0:  # the answer ends here
            most = max(most, len(text) - at)
            continue
        for size in range(min(len(stop) - 1, len(text)), most, -1):
            if text.endswith(stop[:size]):
                most = size
                break
    return most
