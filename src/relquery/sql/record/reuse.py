"""How much of a prompt's text was served from the cache."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from relquery.arrays import TokenIds
from relquery.backends.base import Backend
from relquery.errors import RequestError
from relquery.prompt import Answer, Prompt, Reuse


def reused_characters(prompt: Prompt, answer: Answer, backend: Backend) -> tuple[int | None, bool]:
    """(characters of the text that the cached tokens cover, whether that is exact).

    Exact with the local engine's tokenizer, otherwise in proportion to the tokens. None if some
    spans are independent, because the cached part is then not at the beginning.
    """
    texts = [span.content for span in prompt if isinstance(span.content, str)]
    if len(texts) < len(prompt) or any(span.reuse is not Reuse.PREFIX for span in prompt):
        return None, False
    size = sum(map(len, texts))
    if not answer.cached_tokens or not answer.prompt_tokens:
        return 0, True
    whole = _tokens(prompt, backend)
    if whole is None or len(whole) != answer.prompt_tokens:
        return round(size * answer.cached_tokens / answer.prompt_tokens), False
    return _reach(prompt, whole, answer.cached_tokens, size, backend), True


def _reach(prompt: Prompt, whole: TokenIds, cached: int, size: int, backend: Backend) -> int:
    """The fewest characters whose prompt begins with the cached tokens."""
    low, high = 0, size
    while low < high:
        middle = (low + high) // 2
        part = _tokens(_cut(prompt, middle), backend)
        if part is not None and _common(whole, part) >= cached:
            high = middle
        else:
            low = middle + 1
    return low


def _cut(prompt: Prompt, characters: int) -> Prompt:
    """The prompt with only the first characters of its text."""
    spans, left = [], characters
    for span in prompt:
        assert isinstance(span.content, str)
        spans.append(replace(span, content=span.content[:left]))
        left = max(0, left - len(span.content))
    return tuple(spans)


def _tokens(prompt: Prompt, backend: Backend) -> TokenIds | None:
    try:
        runs = backend.runs(prompt)
    except RequestError:
        return None
    return runs[0] if runs is not None and len(runs) == 1 else None


def _common(one: TokenIds, other: TokenIds) -> int:
    """The number of tokens at the beginning that are the same."""
    size = min(len(one), len(other))
    differs = np.flatnonzero(np.asarray(one[:size]) != np.asarray(other[:size]))
    return int(differs[0]) if len(differs) else size
