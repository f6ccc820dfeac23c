"""The tables on which calls are counted, and a stand-in for a model that answers about them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.queries.prompts import Asked, number, read, read_candidates
from relquery.backends.base import Answers, Backend
from relquery.prompt import Answer, Finish, Prompt, Sampling

URGENT = "Is the ticket urgent?"
RARE = "Does the ticket threaten with a lawyer?"
COMMON = "Is the ticket polite?"
SHIPPING = "Does the review complain about shipping?"
SAME = "Do the two names stand for the same company?"
SHARES = {URGENT: 0.3, RARE: 0.1, COMMON: 0.7, SHIPPING: 0.25, SAME: 0.2}
"""Prompts that are answered with Yes or No, and the share of Yes."""
SCORE = "How urgent is the ticket, from 1 to 99?"
SUMMARY = "Summarize the ticket."
MOOD = "What is the mood of the review?"
KIND = "What kind of product is it?"
PROMPTS = (*SHARES, SCORE, SUMMARY, MOOD, KIND)

Row = dict[str, Any]


def is_yes(prompt: str, **fields: Any) -> bool:
    """The answer to a prompt of SHARES."""
    return number(prompt, fields) < SHARES[prompt]


def text(prompt: str, **fields: Any) -> str:
    """The answer to any prompt."""
    if prompt in SHARES:
        return "Yes" if is_yes(prompt, **fields) else "No"
    if prompt == SCORE:
        return str(1 + int(99 * number(prompt, fields)))
    return f"text {int(1e6 * number(prompt, fields))}"


@dataclass(frozen=True, slots=True)
class World:
    """The tables, as rows. tickets: no two have the same text; reviews: 120 texts in 400 rows."""

    tickets: Sequence[Row]
    reviews: Sequence[Row]
    products: Sequence[Row]
    suppliers: Sequence[Row]
    customers: Sequence[Row]

    def tables(self) -> Iterator[tuple[str, list[Row]]]:
        """By name."""
        for name in self.__slots__:
            yield name, list(getattr(self, name))


def build(tickets: int, seed: int) -> World:
    """A world with so many tickets."""
    rng = np.random.default_rng(seed)
    days, texts = rng.integers(1, 31, tickets).tolist(), rng.integers(0, 120, 400).tolist()
    products, stars = rng.integers(0, 40, 400).tolist(), rng.integers(1, 6, 400).tolist()
    prices = rng.integers(5, 50, 40).tolist()
    return World(
        [{"id": i, "day": day, "body": f"ticket {i} says"} for i, day in enumerate(days)],
        [
            {"id": i, "product": product, "stars": star, "review": f"review {told} says"}
            for i, (product, star, told) in enumerate(zip(products, stars, texts, strict=True))
        ],
        [{"product": i, "name": f"name {i % 20}", "price": p} for i, p in enumerate(prices)],
        [{"supplier": f"supplier {i}", "land": i % 10} for i in range(30)],
        [{"customer": f"customer {i}", "land": i % 10} for i in range(40)],
    )


@dataclass(slots=True)
class StandIn(Backend):
    """Answers as `text` says, and keeps what it was asked."""

    asked: list[Asked] = field(default_factory=list)
    name: str = "stand-in"

    def answer(self, prompts: Sequence[Prompt], sampling: Sampling) -> Answers:
        """See Backend.answer."""
        for index, prompt in enumerate(prompts):
            asked, pairs = read(prompt), read_candidates(prompt)
            if asked is not None:
                self.asked.append(asked)
                yield index, Answer(text(asked.prompt, **asked.fields), Finish.STOP)
            elif pairs:
                self.asked.append(Asked(pairs[0].prompt, {"pairs": len(pairs)}))
                numbers = [
                    number
                    for number, pair in enumerate(pairs, 1)
                    if is_yes(pair.prompt, **pair.fields)
                ]
                yield index, Answer(json.dumps({"answer": numbers}), Finish.STOP)
            else:
                raise ValueError(f"{prompt!r:.80} is not the prompt of an LLM call.")
