"""Names hidden in random words, and the question that lists them (paper 002 §6)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random

from training.domains.sentiment import ADJECTIVES
from training.domains.split import Split
from training.domains.words import pool

BEFORE = "Find the names.\n"
AFTER = "\nGive the names in order."
# Each is one token for the demo model, both at the start of a line and after a space.
NAMES = pool(
    "Alice Amir Anna Bela Boris Carla Carmen Clara Cruz Daniel David Diego Eva Evans Fiona Frank "
    "George Grace Hana Hugo Ines Ivan Jack Jana Karim Kate Keller Kenji Lena Leo Lucas Luisa Marco "
    "Maria Martin Maya Mills Mina Nadia Noah Nora Olsen Oscar Rosa Ruth Samir Santos Sara Simon "
    "Sofia Tara Tom Vera Walsh Wells Wendy Yusuf"
)
HAY = (
    *(word for words in ADJECTIVES.values() for word in words),
    *pool(
        "account camera city cable card case clerk code contract customer desk dialogue doll duel "
        "ending engine family field film florist food friend galaxy gift glass house invoice job "
        "keeper language lawyer leather letter machine manual message metal money music night "
        "nurse order owner page parcel password pianist planet plants plastic plot price problem "
        "proof ranch refund repair robot room rubber scale script sheriff ship shipment signal "
        "snow song sound space stage steel story street subscription summer supplier surface team "
        "ticket trail waiter walls warranty weather wedding week winter"
    ),
)
_WORD = re.compile(r"\w+")
_KNOWN = frozenset(NAMES)


def needle_texts(
    rng: Random, count: int, hay_words: int, split: Split = Split.HELD_OUT
) -> list[str]:
    """Texts of one name and `hay_words` other words each; no name occurs twice.

    count: at most the number of names. With `hay_words` the texts lie on one side of `split`.
    """
    return [text_around(rng, (name,), hay_words, split) for name in rng.sample(NAMES, count)]


def text_around(rng: Random, names: Sequence[str], hay_words: int, split: Split) -> str:
    """The names, in the given order, at random places among `hay_words` random words.

    Without hay there is nothing to draw, and the text is on either side of the split.
    """
    return split.draw(lambda: _mixed(rng, names, hay_words)) if hay_words else " ".join(names)


def question(pieces: Sequence[str]) -> str:
    """The user's turn over texts, or over the answers to earlier questions."""
    return BEFORE + "\n".join(pieces) + AFTER


def listed(names: Sequence[str]) -> str:
    """The answer that lists `names`: "Anna, Boris"."""
    return ", ".join(names)


def names_in(answer: str) -> list[str]:
    """The names in an answer, or in any other text, in order of appearance."""
    return [word for word in _WORD.findall(answer) if word in _KNOWN]


def _mixed(rng: Random, names: Sequence[str], hay_words: int) -> str:
    words = rng.choices(HAY, k=hay_words)
    places = sorted(rng.choices(range(hay_words + 1), k=len(names)))
    for before, (place, name) in enumerate(zip(places, names, strict=True)):
        words.insert(place + before, name)
    return " ".join(words)
