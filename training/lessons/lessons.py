"""Training documents: pieces of text, each either context or to be learned.

A lesson is one of
- *single*: the exact prompt that relquery sends, and its answer;
- *turns*: a prompt, its answer, and more questions about the same row, each answer learned;
- *recall*: a JSON object, then the same object in another order, whose values are learned. This
  gives a copying loss on most tokens, which forms attention heads that find a field by its name;
- *needles*: names in hay, or lists of names from earlier answers, and the list of all names.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, pairwise
from random import Random

from training.domains.rows import Ask, Domain, Kind, Row
from training.domains.split import Split
from training.domains.words import FIRST_NAMES, LAST_NAMES, TITLE_ADJECTIVES, TITLE_NOUNS
from training.lessons.generator import DOMAINS, MAX_EXTRA_FIELDS, pick_fields
from training.lessons.needles import NAMES, listed, question, text_around
from training.lessons.prompt import SYSTEM, Field, ask_text, json_text, user_text

END = "<|end|>"
ROLES = ("<|system|>", "<|user|>", "<|assistant|>")
_SYSTEM, _USER, _ASSISTANT = ROLES
_WORDS = (*FIRST_NAMES, *LAST_NAMES, *TITLE_ADJECTIVES, *TITLE_NOUNS)
MOST_NAMES = 8  # in the answer of a needle lesson
_TEXT_COUNTS = (1, 4, 1, 2, 1, 2, 1, 5)  # how often a needle lesson has 1, 2, ... 8 texts
Lesson = list[tuple[str, bool]]  # (text, to be learned)


@dataclass(frozen=True, slots=True)
class Mix:
    """What the lessons of one stage look like. Shares are probabilities."""

    extra: tuple[int, int]  # least and most fields in addition to the needed ones
    recall: float  # share of recall lessons
    single: float  # share of single questions; the rest are turns
    system: float  # share of lessons that begin with the system prompt
    turns: int  # most questions in one lesson
    kinds: tuple[float, float, float, float]  # weights of filter, label, copy, summary


def lessons(rng: Random, mix: Mix) -> Iterator[Lesson]:
    """An endless stream of lessons over training rows."""
    while True:
        domain = rng.choice(DOMAINS)
        row = domain.row(rng, Split.TRAIN)
        draw = rng.random()
        if draw < mix.recall:
            yield _recall(rng, row, mix)
        else:
            turns = 1 if draw < mix.recall + mix.single else rng.randint(2, mix.turns)
            yield _questions(rng, domain, row, mix, turns)


def needle_lessons(rng: Random, most_hay: int) -> Iterator[Lesson]:
    """An endless stream of needle lessons, of at most about `most_hay` words of hay each."""
    while True:
        draw = rng.random()
        if draw < 0.6:
            groups, hay = _names_of_texts(rng), _spread(rng, most_hay)
        else:  # lists of names, as in later rounds of a reduction; sometimes one is in hay
            groups, hay = _names_of_lists(rng), (0 if draw < 0.95 else most_hay // 4)
        pieces = [_piece(rng, names, hay // len(groups), draw < 0.6) for names in groups]
        answer = listed([name for names in groups for name in names])
        yield [(_USER + question(pieces) + _ASSISTANT, False), (answer + END, True)]


def _names_of_texts(rng: Random) -> list[list[str]]:
    """The names of each text: usually one, rarely none or two, and at least one in all."""
    (count,) = rng.choices(range(1, MOST_NAMES + 1), _TEXT_COUNTS)
    sizes = [1] * count
    if count > 1 and rng.random() < 0.2:  # a name moves to another text
        sizes[rng.randrange(count)] -= 1
        sizes[rng.randrange(count)] += 1
    return _grouped(rng, sizes)


def _names_of_lists(rng: Random) -> list[list[str]]:
    """The names of each list; half of the time the lists have equal lengths."""
    if rng.random() < 0.5:
        return _grouped(rng, [rng.choice((1, 2, 3, 4, 4))] * 2)
    count = rng.choice((2, 2, 2, 3, 4))
    cuts = sorted(rng.sample(range(1, MOST_NAMES + 1), count))
    return _grouped(rng, [end - start for start, end in pairwise((0, *cuts))])


def _grouped(rng: Random, sizes: list[int]) -> list[list[str]]:
    names = iter(rng.sample(NAMES, sum(sizes)))
    return [list(islice(names, size)) for size in sizes]


def _spread(rng: Random, most: int) -> int:
    """A number from 1 to `most`; small numbers are more likely."""
    return 1 + round((most - 1) * rng.random() ** 2)


def _piece(rng: Random, names: list[str], hay_words: int, is_text: bool) -> str:
    if not is_text and (not hay_words or rng.random() < 0.5):
        return listed(names)
    words = max(1, round(hay_words * rng.uniform(0.6, 1.2)))
    return text_around(rng, names, words, Split.TRAIN)


def _questions(rng: Random, domain: Domain, row: Row, mix: Mix, turns: int) -> Lesson:
    first = _ask(rng, domain, mix)
    least, most = mix.extra
    extra = rng.randint(least, min(most, MAX_EXTRA_FIELDS))
    fields = pick_fields(rng, row, first.needs, extra)
    given = {name for name, _ in fields}
    lesson = _opening(rng, mix)
    lesson += [
        (user_text(rng.choice(first.queries), fields) + _ASSISTANT, False),
        (first.answer(row) + END, True),
    ]
    for _ in range(turns - 1):
        ask = _ask(rng, domain, mix)
        if given.issuperset(ask.needs):
            lesson += [
                (_USER + ask_text(rng.choice(ask.queries)) + _ASSISTANT, False),
                (ask.answer(row) + END, True),
            ]
    return lesson


def _ask(rng: Random, domain: Domain, mix: Mix) -> Ask:
    (kind,) = rng.choices(tuple(Kind), mix.kinds)
    return rng.choice([ask for ask in domain.asks if ask.kind is kind])


def _opening(rng: Random, mix: Mix) -> Lesson:
    return [((f"{_SYSTEM}{SYSTEM}" if rng.random() < mix.system else "") + _USER, False)]


def _recall(rng: Random, row: Row, mix: Mix) -> Lesson:
    least, most = mix.extra
    fields = list(pick_fields(rng, row, (), rng.randint(least + 2, most + 2)))
    if rng.random() < 0.5:  # values that can only be copied
        fields = [(name, _noise(rng)) for name, _ in fields]
    lesson = [(_USER + json_text(fields) + _ASSISTANT, False)]
    rng.shuffle(fields)
    return lesson + list(_learned_values(fields))


def _noise(rng: Random) -> str:
    words = [rng.choice(_WORDS) for _ in range(rng.randint(1, 5))]
    return " ".join(words) if rng.random() < 0.8 else str(rng.randrange(100_000))


def _learned_values(fields: list[Field]) -> Iterator[tuple[str, bool]]:
    yield "{\n", False
    for name, value in fields:
        more = "" if name == fields[-1][0] else ","
        if isinstance(value, int):
            yield f'"{name}": ', False
            yield str(value), True
            yield f"{more}\n", False
        else:
            yield f'"{name}": "', False
            yield f'{value}"{more}', True
            yield "\n", False
    yield "}" + END, False
