"""Training documents: pieces of text, each either context or to be learned.

A lesson is one of
- *single*: the exact prompt that relquery sends, and its answer;
- *turns*: a prompt, its answer, and more questions about the same row, each answer learned;
- *recall*: a JSON object, then the same object in another order, whose values are learned. This
  gives a copying loss on most tokens, which forms attention heads that find a field by its name;
- *needles*: names in hay, or lists of names from earlier answers, and the list of all names.

Fields and texts may be modules (paper 001): then their tokens see nothing outside themselves, as in
a prompt whose modules are read from a cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from random import Random
from typing import NamedTuple

from training.domains.rows import Ask, Domain, Kind, Row
from training.domains.split import Split
from training.domains.words import FIRST_NAMES, LAST_NAMES, TITLE_ADJECTIVES, TITLE_NOUNS
from training.lessons.generator import DOMAINS, MAX_EXTRA_FIELDS, pick_fields
from training.lessons.needles import AFTER, BEFORE, NAMES, listed, question, text_around
from training.lessons.prompt import SYSTEM, Field, ask_text, data_text, json_line, json_text

END = "<|end|>"
ROLES = ("<|system|>", "<|user|>", "<|assistant|>")
_SYSTEM, _USER, _ASSISTANT = ROLES
_WORDS = (*FIRST_NAMES, *LAST_NAMES, *TITLE_ADJECTIVES, *TITLE_NOUNS)
MOST_NAMES = 8  # in the answer of a needle lesson
_TEXT_COUNTS = (1, 4, 1, 2, 1, 2, 1, 5)  # how often a needle lesson has 1, 2, ... 8 texts
WHOLE = 0.7  # how often all fields of a lesson with modules are modules


class Piece(NamedTuple):
    """A text of a lesson. learned: whether it is an answer. module: which one it is; 0 for none."""

    text: str
    learned: bool = False
    module: int = 0


Lesson = list[Piece]


@dataclass(frozen=True, slots=True)
class Mix:
    """What the lessons of one stage look like. Shares are probabilities."""

    extra: tuple[int, int]  # least and most fields in addition to the needed ones
    recall: float  # share of recall lessons
    single: float  # share of single questions; the rest are turns
    system: float  # share of lessons that begin with the system prompt
    turns: int  # most questions in one lesson
    kinds: tuple[float, float, float, float]  # weights of filter, label, copy, summary


def lessons(rng: Random, mix: Mix, *, apart: bool = False) -> Iterator[Lesson]:
    """An endless stream of lessons over training rows. apart: fields are modules."""
    while True:
        domain = rng.choice(DOMAINS)
        row = domain.row(rng, Split.TRAIN)
        draw = rng.random()
        if draw < mix.recall:
            yield _recall(rng, row, mix, apart)
        else:
            turns = 1 if draw < mix.recall + mix.single else rng.randint(2, mix.turns)
            yield _questions(rng, domain, row, mix, turns, apart)


def needle_lessons(rng: Random, most_hay: int, *, apart: bool = False) -> Iterator[Lesson]:
    """An endless stream of needle lessons, of at most about `most_hay` words of hay each.

    apart: texts are modules.
    """
    while True:
        draw = rng.random()
        if draw < 0.6:
            groups, hay = _names_of_texts(rng), _spread(rng, most_hay)
        else:  # lists of names, as in later rounds of a reduction; sometimes one is in hay
            groups, hay = _names_of_lists(rng), (0 if draw < 0.95 else most_hay // 4)
        texts = [_text(rng, names, hay // len(groups), draw < 0.6) for names in groups]
        answer = Piece(listed([name for names in groups for name in names]) + END, learned=True)
        if apart:
            before, after = _USER + BEFORE, AFTER + _ASSISTANT
            yield [*_between(before, texts, "\n", after), answer]
        else:
            yield [Piece(_USER + question(texts) + _ASSISTANT), answer]


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


def _text(rng: Random, names: list[str], hay_words: int, is_text: bool) -> str:
    if not is_text and (not hay_words or rng.random() < 0.5):
        return listed(names)
    words = max(1, round(hay_words * rng.uniform(0.6, 1.2)))
    return text_around(rng, names, words, Split.TRAIN)


def _questions(rng: Random, domain: Domain, row: Row, mix: Mix, turns: int, apart: bool) -> Lesson:
    first = _ask(rng, domain, mix)
    least, most = mix.extra
    extra = rng.randint(least, min(most, MAX_EXTRA_FIELDS))
    fields = pick_fields(rng, row, first.needs, extra)
    given = {name for name, _ in fields}
    opening = _opening(rng, mix)
    before = opening + data_text(rng.choice(first.queries))
    lesson = [*_object(rng, before, fields, apart), Piece(first.answer(row) + END, learned=True)]
    for _ in range(turns - 1):
        ask = _ask(rng, domain, mix)
        if given.issuperset(ask.needs):
            lesson += [
                Piece(_USER + ask_text(rng.choice(ask.queries)) + _ASSISTANT),
                Piece(ask.answer(row) + END, learned=True),
            ]
    return lesson


def _object(rng: Random, before: str, fields: Sequence[Field], apart: bool) -> Lesson:
    """A turn of the user that ends with fields as JSON; some or all are modules, after others."""
    if not apart:
        return [Piece(before + json_text(fields) + _ASSISTANT)]
    count = len(fields) if rng.random() < WHOLE else rng.randint(1, len(fields))
    lines = [json_line(*field) for field in fields]
    ordinary = "".join(f"{line},\n" for line in lines[: len(lines) - count])
    return _between(f"{before}{{\n{ordinary}", lines[-count:], ",\n", "\n}" + _ASSISTANT)


def _between(before: str, modules: Sequence[str], separator: str, after: str) -> Lesson:
    """Modules between other text."""
    pieces = [Piece(before)]
    for number, text in enumerate(modules, 1):
        pieces += [Piece(text, module=number), Piece(separator)]
    return [*pieces[:-1], Piece(after)]


def _ask(rng: Random, domain: Domain, mix: Mix) -> Ask:
    (kind,) = rng.choices(tuple(Kind), mix.kinds)
    return rng.choice([ask for ask in domain.asks if ask.kind is kind])


def _opening(rng: Random, mix: Mix) -> str:
    return (f"{_SYSTEM}{SYSTEM}" if rng.random() < mix.system else "") + _USER


def _recall(rng: Random, row: Row, mix: Mix, apart: bool) -> Lesson:
    least, most = mix.extra
    fields = list(pick_fields(rng, row, (), rng.randint(least + 2, most + 2)))
    if rng.random() < 0.5:  # values that can only be copied
        fields = [(name, _noise(rng)) for name, _ in fields]
    lesson = _object(rng, _USER, tuple(fields), apart)
    rng.shuffle(fields)
    return lesson + [Piece(*each) for each in _learned_values(fields)]


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
