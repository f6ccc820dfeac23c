"""Texts that a call's answers are chosen among, or compared with: as tokens, tries and drafts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from relquery.engine.requests.labels import Drafts, LabelTrie, Normalization
from relquery.errors import ConfigError

if TYPE_CHECKING:
    from relquery.model.text.render import Renderer

SCORED_UNASKED = 16
"""Labels are scored unasked if they are so many tokens beside the prompt at most.

That saves a step for each place where they part, and costs what so many prompt tokens do: less than
a tenth of a prompt over a table, of about 200 tokens (paper 003, Table 4). Where a machine computes
a batch of decodes as fast per token as prompts, more labels than that are better decoded."""


class Labels:
    """Texts of which an answer is one, as it is written, whatever the tokenizer makes of it.

    They follow the prompt as they are: " Yes" and "Yes" are two labels wherever the tokenizer
    keeps the space. Of texts with the same tokens the last one counts. end: ids that end an answer.
    vocabulary: the model's tokens are below it. Raises ConfigError for a label with others.
    """

    def __init__(
        self,
        renderer: Renderer,
        end: frozenset[int],
        texts: Sequence[str],
        vocabulary: int = 1 << 31,
    ) -> None:
        self._encoded = {text: renderer.encode(text) for text in texts}
        for text, tokens in self._encoded.items():
            if max(tokens, default=0) >= vocabulary:
                raise ConfigError(
                    f"The label {text!r} has the token {max(tokens)}, and the model has embeddings "
                    f"for {vocabulary} tokens. Choose another text, or resize its embeddings."
                )
        self._texts = {tokens: text for text, tokens in self._encoded.items()}
        self._end = end
        self.tokens = tuple(self._texts)

    def text(self, output: Sequence[int]) -> str | None:
        """The label that an output is, if it is one."""
        return self._texts.get(tuple(output))

    def scores(self, logs: Sequence[float] | None) -> dict[str, float] | None:
        """Log-probabilities in the order of `tokens`, by text."""
        return None if logs is None else dict(zip(self._texts.values(), logs, strict=True))

    def to_score_unasked(self) -> LabelTrie | None:
        """The labels as a trie whose greedy answer is the decoder's; None where it is large or
        cannot be weighed, or there are none."""
        if not self.tokens or not all(map(self._weighable, self.tokens)):
            return None
        trie = LabelTrie(self.tokens, self._end)
        return trie if trie.tokens <= SCORED_UNASKED else None

    def to_score(self, normalization: Normalization) -> LabelTrie:
        """The labels as a trie. Raises ConfigError for what this model cannot weigh."""
        for text, tokens in self._encoded.items():
            if not self._weighable(tokens):
                why = "holds a token that ends an answer" if tokens else "has no tokens"
                raise ConfigError(f"The label {text!r} {why} in this model. Choose another text.")
            if self._texts[tokens] != text:
                raise ConfigError(
                    f"The labels {text!r} and {self._texts[tokens]!r} are the same tokens in this "
                    "model. Remove one."
                )
        return LabelTrie(self.tokens, self._end, normalization)

    def _weighable(self, tokens: tuple[int, ...]) -> bool:
        return bool(tokens) and not self._end.intersection(tokens)


class ComparedTexts:
    """Texts that an answer is compared with.

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
