"""The input of a client: spans, and prompts that begin with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from relquery.errors import ConfigError

SPAN, SPANS = "relquery_span", "relquery_spans"
"""What requests say in `vllm_xargs`: that the prompt is a span; how many tokens each of the spans
has with which the prompt begins."""


@dataclass(frozen=True, slots=True)
class Composite:
    """A prompt that begins with spans, as token ids.

    spans: each is as long as some blocks. rest: what follows and attends to all of them, at least
    one token.
    """

    spans: tuple[tuple[int, ...], ...]
    rest: tuple[int, ...]

    @classmethod
    def of(
        cls, spans: Sequence[Sequence[int]], rest: Sequence[int], *, block: int, pad: int
    ) -> Composite:
        """Fill up spans to whole blocks. block: vLLM's block size. pad: the token to fill up with.

        Raises ConfigError if there are no spans, or nothing to ask.
        """
        if any(isinstance(part, str) for part in (spans, rest, *spans)):
            raise ConfigError("spans and rest must be lists of token ids, not text: tokenize them.")
        if type(block) is not int or block < 1:
            raise ConfigError(f"block is {block!r}; it must be vLLM's block size, e.g. 16.")
        if type(pad) is not int:
            raise ConfigError(
                f"pad is {pad!r}; it must be the id of a token, e.g. that of the end of a text "
                "where a tokenizer has none to fill up with."
            )
        if not rest or not spans or not all(spans):
            raise ConfigError("A composite needs spans with tokens, and at least one token after.")
        filled = [(*span, *(pad,) * (-len(span) % block)) for span in spans]
        return cls(tuple(filled), tuple(rest))

    @property
    def prompt(self) -> list[int]:
        """All tokens in order."""
        return [token for part in (*self.spans, self.rest) for token in part]

    @property
    def said(self) -> Mapping[str, Any]:
        """What the request says in `vllm_xargs`."""
        return {SPANS: [len(span) for span in self.spans]}

    def alone(self) -> Iterator[tuple[list[int], Mapping[str, Any]]]:
        """For each distinct span, its own request: the prompt, and what it says."""
        for span in dict.fromkeys(self.spans):
            yield list(span), {SPAN: 1}
