"""Few-shot examples: rows with their answers, which are written below an instruction."""

from __future__ import annotations

import json

import pandas as pd

from relquery.errors import ConfigError, UnknownColumnError, type_of
from relquery.frames.read.langex import Field, find_column, read_langex

_ANSWER = "Answer"
_YES = {True: "Yes", False: "No"}


def with_examples(instruction: str, examples: object, verb: str, *, is_filter: bool = False) -> str:
    """An instruction with examples below it, one for each row.

    examples: a DataFrame with the columns that the instruction names and their `Answer`; None for
        no examples. is_filter: answers are Yes or No, given as such or as booleans.

    Raises ConfigError.
    """
    if examples is None:
        return instruction
    if not isinstance(examples, pd.DataFrame) or _ANSWER not in examples.columns:
        is_frame = isinstance(examples, pd.DataFrame)
        what = "has no column 'Answer'" if is_frame else f"is {type_of(examples)}"
        raise ConfigError(
            f"examples of {verb} {what}. It must be a DataFrame with the columns that the "
            "instruction names and a column 'Answer'."
        )
    rows = _rows(examples[_names(instruction, list(examples.columns), verb)])
    answers = _answers(examples[_ANSWER], is_filter, verb)
    pairs = zip(map(_doubled, rows), map(_doubled, answers), strict=True)
    shown = [f"{row}\nAnswer: {answer}" for row, answer in pairs]
    asked = f"Is this true? {instruction}" if is_filter and "?" not in instruction else instruction
    # relquery adds this only to a prompt that does not have both words, as examples may have.
    form = ["Answer Yes or No."] if is_filter else []
    return "\n".join([asked, "", "Examples:", *shown, *form])


def _names(instruction: str, columns: list[str], verb: str) -> list[str]:
    """The columns that an instruction names, without the sides of a join."""

    def find(name: str) -> Field:
        for candidate in (name, name.rpartition(":")[0]):
            try:
                return Field(find_column(candidate, columns), "")
            except UnknownColumnError:
                continue
        raise ConfigError(
            f"examples of {verb} has no column {name!r}, which the instruction names. Columns: "
            f"{', '.join(columns)}."
        )

    return [field.name for field in read_langex(instruction, find, verb=verb).fields]


def _rows(examples: pd.DataFrame) -> list[str]:
    """Each row as JSON, as the model sees the rows that it is asked about."""
    known = examples.astype(object).where(examples.notna(), None)
    return [
        json.dumps(dict(row), ensure_ascii=False, default=str)
        for row in known.to_dict(orient="records")
    ]


def _answers(answers: pd.Series, is_filter: bool, verb: str) -> list[str]:
    if not is_filter:
        return [str(answer) for answer in answers]
    known = {**{str(value).lower(): text for value, text in _YES.items()}, "yes": "Yes", "no": "No"}
    texts = [str(answer).strip().lower() for answer in answers]
    for text in texts:
        if text not in known:
            raise ConfigError(f"examples of {verb} has the Answer {text!r}; it must be Yes or No.")
    return [known[text] for text in texts]


def _doubled(text: str) -> str:
    """Braces as an instruction writes those that name no column."""
    return text.replace("{", "{{").replace("}", "}}")
