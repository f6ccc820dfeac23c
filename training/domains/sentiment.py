"""Review texts whose rating, 1 to 5, is decided by their words.

Every opinion in a review expresses the same rating, except in the mixed form of rating 3.
Negation ("not boring") and emphasis ("really dull") move a mild word by one step.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from training.domains.split import Split
from training.domains.words import pool

ADJECTIVES: dict[int, tuple[str, ...]] = {
    5: pool(
        "superb brilliant magnificent stunning flawless masterful outstanding wonderful "
        "fantastic perfect amazing excellent"
    ),
    4: pool(
        "good pleasant enjoyable solid charming likeable decent clever engaging satisfying nice fun"
    ),
    3: pool("average ordinary passable middling acceptable unremarkable standard adequate"),
    2: pool(
        "dull weak slow flat bland clumsy boring tired shallow disappointing forgettable messy"
    ),
    1: pool(
        "terrible awful dreadful horrible unbearable atrocious disastrous hopeless pathetic "
        "appalling worthless miserable"
    ),
}
VERDICTS: dict[int, tuple[str, ...]] = {
    5: (
        "I loved every part of it",
        "it could not be better",
        "this is the best I have come across in years",
        "I recommend it to everyone",
        "an absolute triumph",
    ),
    4: (
        "I liked it",
        "it is worth your time",
        "I was happy with it overall",
        "I would pick it again",
        "it does its job well",
    ),
    3: (
        "I have no strong feelings about it",
        "it is neither good nor bad",
        "you can take it or leave it",
        "it is fine but nothing more",
        "I am undecided about it",
    ),
    2: (
        "I did not like it much",
        "I expected more",
        "I would rather skip it",
        "I was not happy with it",
        "it is hardly worth the money",
    ),
    1: (
        "I hated all of it",
        "a complete waste of money",
        "I want my money back",
        "avoid it at all costs",
        "this is the worst I have come across",
    ),
}
EMPHASIS = ("really", "very", "truly", "extremely")
MILD_OPPOSITE = {4: 2, 2: 4}  # "not boring" expresses 4, "not good" expresses 2
EMPHASISED = {5: 4, 1: 2}  # "very good" expresses 5, "very dull" expresses 1


def draw_rating(rng: Random, quality: int) -> int:
    """The item's `quality` in four of ten reviews, otherwise any rating, so averages differ."""
    return quality if rng.random() < 0.4 else rng.randint(1, 5)


def review(
    rng: Random,
    split: Split,
    rating: int,
    aspects: tuple[str, ...],
    filler: Callable[[], str],
    short: bool = False,
) -> str:
    """A review of `rating` on one side of the split; `filler` makes sentences without opinion.

    short: whether it is one sentence.
    """
    return split.draw(lambda: _review(rng, rating, aspects, filler, short))


def _review(
    rng: Random, rating: int, aspects: tuple[str, ...], filler: Callable[[], str], short: bool
) -> str:
    sentences = [_opening(rng, rating, aspects)]
    if short:
        return f"{sentences[0][0].upper()}{sentences[0][1:]}."
    if rng.random() < 0.5:
        sentences.append(rng.choice(VERDICTS[rating]))
    if rng.random() < 0.25:
        sentences.append(_clause(rng, rating, rng.choice(aspects)))
    rng.shuffle(sentences)
    if rng.random() < 0.5:
        sentences.insert(rng.randrange(len(sentences) + 1), filler())
    return " ".join(f"{text[0].upper()}{text[1:]}." for text in sentences)


def _opening(rng: Random, rating: int, aspects: tuple[str, ...]) -> str:
    first, second = rng.sample(aspects, 2)
    if rating == 3 and rng.random() < 0.4:
        sides = [4, 2]
        rng.shuffle(sides)
        return f"{_clause(rng, sides[0], first)} but {_clause(rng, sides[1], second)}"
    if rng.random() < 0.5:
        return _clause(rng, rating, first)
    return f"{_clause(rng, rating, first)} and {_clause(rng, rating, second)}"


def _clause(rng: Random, rating: int, aspect: str) -> str:
    form = rng.randrange(4)
    phrase = _phrase(rng, rating)
    if form == 0:
        return f"I found the {aspect} {phrase}"
    if form == 1:
        return f"the {aspect} felt {phrase}"
    return f"the {aspect} is {phrase}"


def _phrase(rng: Random, rating: int) -> str:
    """An adjective that expresses `rating`: alone, negated or emphasised."""
    if rating in MILD_OPPOSITE and rng.random() < 0.25:
        return f"not {rng.choice(ADJECTIVES[MILD_OPPOSITE[rating]])}"
    if rating in EMPHASISED and rng.random() < 0.25:
        return f"{rng.choice(EMPHASIS)} {rng.choice(ADJECTIVES[EMPHASISED[rating]])}"
    return rng.choice(ADJECTIVES[rating])
