"""Functions that ask about a row, such as LLM, AI_FILTER, AI_CLASSIFY and AI_EXTRACT."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from relquery.errors import QueryError
from relquery.prompt import Sampling
from relquery.sql.binder.arguments import Arguments, Template, literal_of
from relquery.sql.binder.call import NAMED
from relquery.sql.binder.making import Made, Maker
from relquery.sql.binder.prompts import Asked, of_text, take_prompt
from relquery.sql.binder.settings import check_done, drawn, labels_in
from relquery.sql.binder.task import Task, Worded, names_all
from relquery.sql.parser import build
from relquery.sql.parser.tree import Function, Node
from relquery.sql.types.leaves import Leaf
from relquery.sql.types.shape import (
    ListOf,
    Output,
    Part,
    StructOf,
    check_names,
    described,
    kind_of,
)

_YES_NO = ("Yes", "No")
# What the answer must be follows, which says enough.
_EXTRACT = Worded("Extract from the data what is asked for.\n", "")
# A name without blanks that has a digit, or of a known family: llama3.1-70b, mistral-large.
_MODEL = re.compile(
    r"(?=.*\d)[a-zA-Z][\w./:-]*"
    r"|(?:claude|deepseek|gemini|gemma|jamba|llama|mistral|mixtral|openai|reka|snowflake)-[\w./:-]*"
)
_JSON_TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")
_SCHEMA_WORDS = {"schema", "json_schema", "properties", "enum", "const", "anyOf", "oneOf", "allOf"}
_ANY: tuple[type, ...] = (object,)
_MODES = {"single": False, "multi": True}


def complete(given: Arguments, maker: Maker) -> Made:
    """LLM('prompt', field, ... [, output := type]): free text, one of some labels, or a type."""
    if given.function != "llm":
        given.take_config()
        _check_no_model(given)
    sampling = drawn(given, maker.defaults)
    labels = labels_in(given)
    sampling = sampling if labels is None else replace(sampling, labels=labels, schema=None)
    output = _output(given, maker)
    retry = given.option("retry", (bool,), "true or false", default=False)
    asked = take_prompt(given, maker.knows)
    check_done(given, "labels", "output", "retry")
    if output is None:
        return maker.answered(
            Task(asked.query, sampling, retry=retry, function=given.function), asked
        )
    if labels is not None:
        raise QueryError(f"{given.written} sets labels and output. Set one of them.")
    return _typed(output, asked, sampling, retry, given, maker)


def _check_no_model(given: Arguments) -> None:
    """Raises QueryError for the name of a model, which Snowflake's function has first."""
    first = literal_of(given.nodes[0]) if len(given.nodes) > 1 else None
    name = given.options.get("model", first)
    if "model" in given.options or (isinstance(first, str) and _MODEL.fullmatch(first)):
        raise QueryError(
            f"{given.written} names the model {name!r}. The model is that of the connection "
            "(rq.connect, --model). Leave it out: AI_COMPLETE('prompt', column, ...). If it is the "
            "prompt, write LLM in place of AI_COMPLETE."
        )


def filter_(given: Arguments, maker: Maker) -> Made:
    """AI_FILTER('question', field, ... [, classify := true]): whether the answer is yes.

    classify: in a join, ask about one row and many of the other table at once.
    """
    sampling = replace(drawn(given, maker.defaults), labels=_YES_NO)
    if given.option("classify", (bool,), "true or false", default=False):
        return _match(given, maker, sampling)
    asked = _asking_for_labels(take_prompt(given, maker.knows), _YES_NO)
    check_done(given, "classify")
    call = maker.answered(Task(asked.query, sampling, function=given.function), asked).value
    return Made(build.compared(build.EQUAL, call, build.text("Yes")), "BOOLEAN")


def _match(given: Arguments, maker: Maker, sampling: Sampling) -> Made:
    """A filter over pairs as a classification; see Task."""
    asked = take_prompt(given, maker.knows)
    check_done(given, "classify")
    if any(isinstance(part, int) for part in asked.query):
        raise QueryError(
            f"{given.written} sets classify, which needs a text as its prompt. Name columns in "
            "braces: 'Is {a.text} about {b.name}?'."
        )
    output = Output(ListOf(Leaf("INTEGER")), "INTEGER[]")
    sampling = replace(sampling, labels=(), schema=output.schema)
    task = Task(asked.query, sampling, output, "match", function=given.function)
    maker.notes.extend(asked.notes)
    call = maker.call(task, asked.fields)
    return Made(build.compared(build.EQUAL, call, build.text("Yes")), "BOOLEAN")


def score(given: Arguments, maker: Maker) -> Made:
    """AI_SCORE('question', field, ... [, labels := ...]): how likely the first label is, 0 to 1.

    If all labels are numbers, the mean that their probabilities give.
    """
    labels = labels_in(given)
    sampling = replace(drawn(given, maker.defaults), labels=labels or _YES_NO, scored=True)
    asked = _asking_for_labels(take_prompt(given, maker.knows), sampling.labels)
    check_done(given, "labels")
    task = Task(
        asked.query, sampling, Output(Leaf("DOUBLE"), "DOUBLE"), "score", function=given.function
    )
    return maker.answered(task, asked)


def classify(given: Arguments, maker: Maker) -> Made:
    """AI_CLASSIFY(field, ['label', ...] [, instruction := 'text', multi := true]).

    The value is one of the labels; with `multi` the list of those that apply. A label may be a
    struct {'label': ..., 'description': ...}.
    """
    given.take_config()
    labels, about = _described_labels(given)
    sampling = drawn(given, maker.defaults)
    labelled = replace(sampling, labels=labels)  # which checks them, for `multi` too
    many = _is_multi(given)
    asked = _instructed(given, maker, "Classify the data.")
    check_done(given, "labels", "instruction", "multi")
    for label, text in about.items():
        asked = asked.followed_by(f"{label}: {text}")
    if not many:
        asked = _asking_for_labels(asked, labels)
        task = Task(asked.query, labelled, function=given.function)
        return maker.answered(task, asked)
    asked = asked.followed_by(f"Answer with all labels that apply. Labels: {', '.join(labels)}.")
    shape = ListOf(Leaf("VARCHAR", labels), distinct=True, most=len(labels))
    return _typed(Output(shape, "VARCHAR[]"), asked, sampling, False, given, maker)


def extract(given: Arguments, maker: Maker) -> Made:
    """AI_EXTRACT(field, 'name VARCHAR, ...' [, instruction := 'text', retry := true]).

    In place of the type, a JSON Schema, a struct of questions {'name': 'Who wrote it?'} or a list
    of questions, as Snowflake has them.
    """
    sampling = drawn(given, maker.defaults)
    retry = given.option("retry", (bool,), "true or false", default=False)
    output = _output(given, maker) or _type_of_extract(given, maker)
    asked = _instructed(given, maker, _EXTRACT)
    check_done(given, "output", "instruction", "retry")
    return _typed(output, asked, sampling, retry, given, maker)


def _typed(
    output: Output, asked: Asked, sampling: Sampling, retry: bool, given: Arguments, maker: Maker
) -> Made:
    """A call that answers in JSON."""
    if sampling.stop:
        raise QueryError(
            f"{given.written} sets stop. An answer in JSON ends by itself. Remove stop."
        )
    asked = asked.followed_by(f"Answer in JSON: {described(output.whole)}.")
    sampling = replace(sampling, labels=(), schema=output.schema)
    task = Task(asked.query, sampling, output, retry=retry, function=given.function)
    return maker.answered(task, asked)


def _output(given: Arguments, maker: Maker) -> Output | None:
    value = given.option("output", _ANY, "a type")
    if isinstance(value, Node):
        raise QueryError(f"output of {given.written} must be a type as text, e.g. 'name VARCHAR'.")
    if isinstance(value, tuple | list) or (isinstance(value, dict) and _asks(value)):
        return _of_questions(value, given, maker)
    return None if value is None else maker.output(value)


def _asks(value: dict[str, Any]) -> bool:
    """Whether a struct has questions by name, and is not a JSON Schema."""
    return all(isinstance(one, str) for one in value.values()) and not _is_schema(value)


def _is_schema(value: dict[str, Any]) -> bool:
    """Whether a struct is a JSON Schema; `type` and its other words may also name questions."""
    kind = value.get("type")
    if isinstance(kind, list | tuple) or kind in _JSON_TYPES or "$ref" in value:
        return True
    return any(not isinstance(value[word], str) for word in _SCHEMA_WORDS & set(value))


def _type_of_extract(given: Arguments, maker: Maker) -> Output:
    """The type among the arguments: a list, a struct, or a text."""
    questions = given.take(tuple) or given.take(list) or given.take(dict)
    if questions is not None:
        return _of_questions(questions, given, maker)
    found = given.take(str) or given.take(type)
    if found is None:
        raise QueryError(
            f"{given.written} does not say what to extract. Give a type after the field, e.g. "
            "AI_EXTRACT(body, 'name VARCHAR, amount DECIMAL(10,2)')."
        )
    return maker.output(found)


def _of_questions(questions: Any, given: Arguments, maker: Maker) -> Output:
    if isinstance(questions, dict):
        if _is_schema(questions):
            return maker.output(questions)
        pairs = list(questions.items())
    else:
        pairs = [one if isinstance(one, tuple) else (one, "") for one in questions]
    if not all(len(pair) == 2 and all(isinstance(text, str) for text in pair) for pair in pairs):
        raise QueryError(
            f"{given.written}: the questions must be texts, e.g. {{'name': 'Who wrote it?'}}."
        )
    parts = tuple(Part(name, Leaf("VARCHAR"), about=about) for name, about in pairs)
    check_names(parts)
    shape = StructOf(parts)
    return Output(shape, kind_of(shape))


def _instructed(given: Arguments, maker: Maker, default: str | Worded) -> Asked:
    """The prompt of a function whose field goes first: an option, or a text among its arguments."""
    text = given.option("instruction", (str,), "a text")
    prompt = take_prompt(given, maker.knows) if text is None and _is_prompt(given) else None
    if prompt is not None:
        return prompt
    text = given.take(str) if text is None else text
    if not given.nodes and "{" not in (text or ""):
        raise QueryError(
            f"{given.written} has no field. Give a column: {given.function.upper()}(column, ...)."
        )
    if text is None and isinstance(default, Worded):
        return replace(of_text("", given.nodes, maker.knows, given.written), query=(default,))
    return of_text(text or str(default), given.nodes, maker.knows, given.written)


def _is_prompt(given: Arguments) -> bool:
    """Whether the first argument is a PROMPT, or the only one is a text without a name."""
    values = [None if NAMED in node.meta else literal_of(node) for node in given.nodes]
    return bool(values) and (
        isinstance(values[0], Template) or (len(values) == 1 and isinstance(values[0], str))
    )


def _described_labels(given: Arguments) -> tuple[tuple[str, ...], dict[str, str]]:
    """The labels, and descriptions of some."""
    found = given.take(tuple)
    if found is not None:
        given.options.setdefault("labels", found)
    if any(isinstance(node, Function) and node.name == "list_value" for node in given.nodes):
        raise QueryError(
            f"{given.written} has labels that are not texts. Write them in single quotes; double "
            "quotes name a column. A list that a query gives is a parameter: labels := $labels."
        )
    if "labels" not in given.options:
        raise QueryError(
            f"{given.written} has no labels. Give a list of them: "
            "AI_CLASSIFY(column, ['positive', 'negative'])."
        )
    about: dict[str, str] = {}
    items = given.options["labels"]
    if isinstance(items, tuple | list):
        for one in items:
            if isinstance(one, dict) and isinstance(one.get("description"), str):
                about[str(one.get("label"))] = one["description"]
        given.options["labels"] = tuple(
            one.get("label") if isinstance(one, dict) else one for one in items
        )
    return labels_in(given) or (), about


def _is_multi(given: Arguments) -> bool:
    mode = given.options.pop("output_mode", "single")
    if mode not in _MODES:
        raise QueryError(
            f"output_mode of {given.written} is {mode!r}; expected 'single' or 'multi'."
        )
    return bool(given.option("multi", (bool,), "true or false", default=_MODES[mode]))


def _asking_for_labels(asked: Asked, labels: tuple[str, ...]) -> Asked:
    """The prompt, which says what the labels are unless it names them all already."""
    if names_all((one.json if isinstance(one, Worded) else one for one in asked.query), labels):
        return asked
    *others, last = labels
    listing = f"{', '.join(others)} or {last}" if others else last
    return asked.followed_by(f"Answer {listing}.")
