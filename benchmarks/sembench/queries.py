"""SemBench's ten Movie queries in relquery's SQL, and who answers them from the gold labels."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from relquery.backends.base import Backend
from relquery.prompt import Answer, Finish, Prompt, Sampling

Row = Mapping[str, Any]

TAKEN, QUANTUMANIA = "taken_3", "ant_man_and_the_wasp_quantumania"
POSITIVE = "Is this review clearly positive?"
SAME = "Do these reviews express the same sentiment?"
OPPOSITE = "Do these reviews express opposite sentiments?"
LIKED = "How much did the reviewer like the movie: 1 (hated it), 2, 3, 4 or 5 (loved it)?"
LABEL = "Is this review positive or negative?"

_IS_POSITIVE = f"AI_FILTER('{POSITIVE}', reviewText)"
_SCORE = f"AI_CLASSIFY(reviewText, ['1', '2', '3', '4', '5'], instruction := '{LIKED}')::INT"


def _pairs(question: str, options: str) -> str:
    return f"""
SELECT r1.id, r1.reviewId AS first, r2.reviewId AS second
FROM Reviews r1 JOIN Reviews r2 ON r1.id = r2.id AND r1.reviewId <> r2.reviewId
WHERE r1.id = '{QUANTUMANIA}'
AND AI_FILTER('{question}', a := r1.reviewText, b := r2.reviewText, pairs := {options})""".strip()


SQL = {
    "Q1": f"SELECT reviewId FROM Reviews WHERE {_IS_POSITIVE} LIMIT 5",
    "Q2": f"SELECT reviewId FROM Reviews WHERE id = '{TAKEN}' AND {_IS_POSITIVE} LIMIT 5",
    "Q3": "SELECT count(*) AS positive_review_cnt FROM Reviews\n"
    f"WHERE id = '{TAKEN}' AND {_IS_POSITIVE}",
    "Q4": f"SELECT avg({_IS_POSITIVE}::INT) AS positivity_ratio FROM Reviews WHERE id = '{TAKEN}'",
    "Q5": _pairs(SAME, "'symmetric'") + " LIMIT 10",
    "Q6": _pairs(OPPOSITE, "'symmetric'") + " LIMIT 10",
    "Q7": _pairs(OPPOSITE, "['symmetric', 'labels']"),
    "Q8": f"SELECT if({_IS_POSITIVE}, 'POSITIVE', 'NEGATIVE') AS scoreSentiment,\n"
    f"count(*) AS count FROM Reviews WHERE id = '{TAKEN}' GROUP BY ALL",
    "Q9": f"SELECT reviewId, {_SCORE} AS reviewScore FROM Reviews WHERE id = '{QUANTUMANIA}'",
    "Q10": f"SELECT id AS movieId, avg({_SCORE}) AS movieScore FROM Reviews GROUP BY id",
}


def _is_positive(row: Row) -> bool:
    return bool(row["scoreSentiment"] == "POSITIVE")


def _stars(row: Row) -> str:
    """From the critic's own score where that is a fraction, else from the sentiment."""
    match = re.fullmatch(r"([\d.]+)/([\d.]+)", str(row["originalScore"] or ""))
    share = float(match[1]) / float(match[2]) if match else 0.8 if _is_positive(row) else 0.4
    return str(min(5, max(1, round(5 * share))))


def _yes(holds: bool) -> str:
    return "Yes" if holds else "No"


ANSWERS: Mapping[str, Callable[..., str]] = {
    POSITIVE: lambda row: _yes(_is_positive(row)),
    LABEL: lambda row: "positive" if _is_positive(row) else "negative",
    LIKED: _stars,
    SAME: lambda a, b: _yes(_is_positive(a) == _is_positive(b)),
    OPPOSITE: lambda a, b: _yes(_is_positive(a) != _is_positive(b)),
}
"""Answers to questions about one row or two."""
PROPOSALS = {
    OPPOSITE: {
        "yes": "different",
        "question": LABEL,
        "labels": ["positive", "negative"],
        "pairs": [],
    }
}
"""What the stand-in proposes for `pairs := 'labels'`."""

_NAMED = re.compile(r"^[ab]: ", re.MULTILINE)


@dataclass(slots=True)
class GoldModel(Backend):
    """Reads the question and the texts in a prompt, and answers by the rows of these texts."""

    rows: Mapping[str, Row]
    """By the text that is sent of them."""
    count: Callable[[str], int]
    """Tokens of a text."""
    answers: Mapping[str, Callable[..., str]] = field(default_factory=lambda: ANSWERS)
    proposals: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: PROPOSALS)
    calls: int = 0
    tokens: int = 0
    characters: int = 0

    @property
    def name(self) -> str:
        """The model whose prices count."""
        return "gemini:gemini-2.5-flash"

    def answer(self, prompts: Sequence[Prompt], sampling: Sampling) -> Iterator[tuple[int, Answer]]:
        for index, prompt in enumerate(prompts):
            text = "".join(str(span.content) for span in prompt)
            said = self._said(text, sampling)
            read, written = self.count(text), self.count(said)
            self.calls += 1
            self.tokens += read + written
            self.characters += len(text) + len(said)
            yield index, Answer(said, Finish.STOP, prompt_tokens=read, output_tokens=written)

    def _said(self, text: str, sampling: Sampling) -> str:
        question, _, data = text.partition("\n\n")
        question = question.split("\n")[0]
        if sampling.schema is not None:
            return json.dumps(self.proposals[question])
        texts = [data]
        if _read(data) not in self.rows:
            _, *pair = _NAMED.split(data)
            texts = [review.removesuffix("\n").replace("\n ", "\n") for review in pair]
        return self.answers[question](*(self.rows[_read(review)] for review in texts))


def _read(text: str) -> str:
    """A value of a field: where it could be taken for something else, it is sent as JSON."""
    if text.startswith('"') and text.endswith('"'):
        found: str = json.loads(text)
        return found
    return text
