"""What calls will take: as the backend reports it, or estimated if it does not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

import numpy as np

from relquery.backends.base import Backend
from relquery.prices.table import known_price, no_price
from relquery.prompt import Compared, Prompt, Sampling

Figure = TypeVar("Figure", int, float)
CountedBy = Literal["tokenizer", "sample", "characters"]

_CHARACTERS = 4  # per token; typical of English with most tokenizers
_COUNTED = 4096  # at most this many prompts are tokenised; of more, a sample of this size
_PROVIDERS = ("openai", "responses", "anthropic", "gemini", "google", "deepseek")
_PER = 1_000_000  # prices are for this many tokens
_OPPOSITES = {"yes": "no", "no": "yes", "true": "false", "false": "true"}


@dataclass(frozen=True, slots=True)
class Effort:
    """What some prompts take in total.

    prompt_tokens: counted by the backend's tokenizer, for all prompts or a sample, or estimated
    from characters. refused: number of prompts that would be refused, e.g. as too long; None if
    not all are counted. seconds: an upper bound, with an empty cache and answers of maximal length;
    None if the backend does not predict. usd: likewise; None if the model has no known price.
    """

    prompt_tokens: int
    counted_by: CountedBy
    refused: int | None
    seconds: float | None
    usd: float | None

    def plus(self, more: Effort) -> Effort:
        """What all of the prompts take."""
        return Effort(
            self.prompt_tokens + more.prompt_tokens,
            self.counted_by if self.counted_by != "tokenizer" else more.counted_by,
            _sum(self.refused, more.refused),
            _sum(self.seconds, more.seconds),
            _sum(self.usd, more.usd),
        )


def effort(
    prompts: Sequence[Prompt], sampling: Sampling, backend: Backend, hit_rate: float = 0.0
) -> Effort:
    """Count tokens and derive time and price from them. Computes no answers.

    hit_rate: the share of the prompt tokens that the cache serves.
    """
    picked = range(len(prompts))
    if len(prompts) > _COUNTED:
        picked = np.linspace(0, len(prompts) - 1, _COUNTED).astype(int).tolist()
    counts = backend.prompt_tokens([prompts[at] for at in picked], sampling)
    by: CountedBy = "tokenizer" if len(picked) == len(prompts) else "sample"
    if counts is None:
        by = "characters"
        counts = [sum(len(str(span.content)) for span in each) // _CHARACTERS for each in prompts]
    refused = counts.count(0) if by == "tokenizer" else None
    if by == "sample":
        mean = sum(counts) / len(counts)
        counts = [round(mean)] * len(prompts)
    cached = int(hit_rate * sum(counts))
    seconds = backend.predict(counts, sampling, cached) if counts else 0.0
    return Effort(sum(counts), by, refused, seconds, _usd(backend, counts, sampling))


def _sum(one: Figure | None, more: Figure | None) -> Figure | None:
    return None if one is None or more is None else one + more


def answers(sampling: Sampling, backend: Backend) -> str:
    """How an answer is produced, and how long it can get."""
    labels, in_one_pass = len(set(sampling.labels)), backend.one_pass(sampling)
    length = f"at most {_counted(sampling.max_tokens, 'token')}"
    if in_one_pass is None:
        how = "by the provider"
    elif isinstance(sampling, Compared) and sampling.max_tokens > 1:
        how = "usually one forward pass" if in_one_pass else "decoded until it decides"
    elif in_one_pass:
        return f"one forward pass, {_counted(labels, 'label') if labels else '1 token'}"
    else:
        how = "decoded"
    return f"{how}, {'one of ' + _counted(labels, 'label') if labels else length}"


def hint(sampling: Sampling, backend: Backend) -> str | None:
    """Labels that make a decoded call take just one forward pass, if its answers are only compared
    with texts: WHERE LLM('Positive?', review) = 'Yes'  =>  ('Yes', 'No').
    """
    if not isinstance(sampling, Compared) or backend.one_pass(sampling) is not False:
        return None
    labels = sampling.texts
    if not backend.one_pass(replace(sampling, labels=labels)):
        return None
    shown = [*labels]
    if len(labels) == 1:
        shown.append(_opposite(labels[0]) or "...")
    listing = ", ".join(
        text if text == "..." and text not in labels else _quoted(text) for text in shown
    )
    return f"add labels := [{listing}]"


def _opposite(label: str) -> str | None:
    other = _OPPOSITES.get(label.lower())
    if other is None:
        return None
    if label.isupper():
        return other.upper()
    return other.capitalize() if label[0].isupper() else other


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def unpriced(backend: Backend) -> str | None:
    """That no price is known, if a provider's model has none."""
    provider, _, model = backend.name.partition(":")
    if provider not in _PROVIDERS or known_price(backend.name) is not None:
        return None
    return no_price(model)


def _usd(backend: Backend, counts: Sequence[int], sampling: Sampling) -> float | None:
    price = known_price(backend.name)
    if price is None:
        return None
    longest = len(counts) * sampling.max_tokens
    return (sum(counts) * price.uncached + longest * price.output) / _PER


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
