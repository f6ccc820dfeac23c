"""A stand-in for a provider that counts with a tokenizer of its own, caches and bills by its rules.

Everything is computed prompt by prompt from texts, without the package's trees and optimisers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from relquery.backends.base import Limits
from relquery.prices.table import known_price
from relquery.prompt import Answer, Finish, Prompt, Sampling
from tests.sql.fakes import FakeBackend

_TOKEN = re.compile(r"\w{1,4}|\s+|[^\w\s]")
_MESSAGE = 9  # tokens around the messages of a prompt


def tokens_of(text: str) -> list[str]:
    return _TOKEN.findall(text)


@dataclass(slots=True)
class Provider(FakeBackend):
    """under_way: requests that are sent before the first is answered. usd: billed so far.

    plain: what the same would have cost without any cache.
    """

    under_way: int = 4
    usd: float = 0.0
    plain: float = 0.0
    read: int = 0
    sent: list[tuple[list[str], list[tuple[str, ...]]]] = field(default_factory=list)

    @property
    def limits(self) -> Limits:
        return Limits(concurrency=self.under_way)

    def answer(self, prompts: Sequence[Prompt], sampling: Sampling) -> Iterator[tuple[int, Answer]]:
        self.sent.clear()  # nothing is left of earlier requests
        for index, answer in FakeBackend.answer(self, prompts, sampling):
            size, read = self._bill(prompts[index], answer)
            output = len(tokens_of(answer.text or ""))
            yield (
                index,
                Answer(
                    answer.text,
                    Finish.STOP,
                    prompt_tokens=size,
                    cached_tokens=read,
                    output_tokens=output,
                ),
            )

    def _bill(self, prompt: Prompt, answer: Answer) -> tuple[int, int]:
        price = known_price(self.name)
        assert price is not None
        tokens, marks = list[str](), list[tuple[str, ...]]()
        for span in prompt:
            tokens += tokens_of(str(span.content))
            if span.keep:
                marks.append(tuple(tokens))
        marks = [mark for mark in marks if len(mark) >= price.minimum]
        done = self.sent[: max(0, len(self.sent) - self.under_way + 1)]
        size, output = len(tokens) + _MESSAGE, len(tokens_of(answer.text or ""))
        if price.breakpoints:
            cached = {mark for _, others in done for mark in others}
            read = max((len(mark) for mark in marks if mark in cached), default=0)
            written = max(map(len, marks), default=0) - read
        else:
            shared = max((_shared(tokens, other) for other, _ in done), default=0)
            steps = (shared - price.minimum) // price.granularity * price.granularity
            read, written = (price.minimum + steps if shared >= price.minimum else 0), 0
        self.sent.append((tokens, marks))
        self.usd += price.usd(size - read - written, written, read, output)
        self.plain += price.usd(size, 0, 0, output)
        self.read += read
        return size, read


def _shared(one: Sequence[str], other: Sequence[str]) -> int:
    for at, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return at
    return min(len(one), len(other))
