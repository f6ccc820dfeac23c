"""Texts that the answers of a call are compared with: drafts of it, and when it can be none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from relquery.backends.local.labels import SCORED_UNASKED
from relquery.engine.requests.labels import Drafts

if TYPE_CHECKING:
    from relquery.model.text.render import Renderer


class Comparison:
    """What an answer is compared with.

    end: ids that end an answer. stop: strings that do, and are cut from it.
    """

    def __init__(
        self, renderer: Renderer, end: frozenset[int], texts: Sequence[str], stop: Sequence[str]
    ) -> None:
        self._renderer, self._end, self._texts = renderer, end, texts
        # A tokenizer may drop white space once it knows what follows: texts count without it.
        self._wanted = [_squeezed(text) for text in texts]
        self._stops = [_squeezed(text) for text in stop]

    def drafts(self, vocabulary: int = 1 << 31) -> Drafts | None:
        """The texts as drafts, unless they are too much to compute for each answer.

        vocabulary: the model's tokens are below it.
        """
        tokens = [self._renderer.encode(text) for text in self._texts if text]
        known = [each for each in tokens if max(each, default=0) < vocabulary]
        drafts = Drafts([each for each in known if not self._end.intersection(each)])
        return drafts if 0 < drafts.tokens <= SCORED_UNASKED else None

    def is_decided(self, output: Sequence[int]) -> bool:
        """Whether an answer that begins like this can be none of the texts, however it goes on."""
        # Half a character is shown as U+FFFD until its other tokens are there.
        begun = _squeezed(self._renderer.decode(output)).rstrip("\ufffd")
        return not any(self._may_become(begun, text) for text in self._wanted)

    def _may_become(self, begun: str, text: str) -> bool:
        if text.startswith(begun):
            return True
        behind = begun[len(text) :]
        return begun.startswith(text) and any(stop.startswith(behind) for stop in self._stops)


def _squeezed(text: str) -> str:
    return "".join(text.split())
