"""Functions that ask about a row, such as LLM, AI_FILTER, AI_CLASSIFY and AI_EXTRACT."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from relquery.errors import QueryError
from relquery.prompt import Sampling
from relquery.sql.binder.arguments import LlmFunction, Template, literal_of
from relquery.sql.binder.call import NAMED
from relquery.sql.binder.prompts import prompt_of, take_prompt
from relquery.sql.binder.task import PromptText, Worded, names_all
from relquery.sql.parser import build
from relquery.sql.parser.tree import Expression, Function, Node
from relquery.sql.types.given import output_of
from relquery.sql.types.leaves import Leaf
from relquery.sql.types.shape import (
    ListOf,
    Output,
    Part,
    StructOf,
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


def complete(given: LlmFunction) -> Expression:
    """LLM('prompt', field, ... [, output := type]): free text, one of some labels, or a type."""
    if given.name != "llm":
        given.take_config()
        _check_no_model(given)
    sampling, labels, output = given.sampling(), given.labels(), _output(given)
    if labels is not None:
        sampling = replace(sampling, labels=labels, schema=None)
    retry, prompt = given.option("retry", False), take_prompt(given)
    if output is None:
        return given.call(prompt, sampling, retry=retry)
    if labels is not None:
        raise QueryError(f"{given.written} sets labels and output. Set one of them.")
    return _typed(output, prompt, sampling, given, retry=retry)


def _check_no_model(given: LlmFunction) -> None:
    """Raises QueryError for the name of a model, which Snowflake's function has first."""
    first = literal_of(given.nodes[0]) if len(given.nodes) > 1 else None
    name = given.options.get("model", first)
    if "model" in given.options or (isinstance(first, str) and _MODEL.fullmatch(first)):
        raise QueryError(
            f"{given.written} names the model {name!r}. The model is that of the connection "
            "(rq.connect, --model). Leave it out: AI_COMPLETE('prompt', column, ...). If it is the "
            "prompt, write LLM in place of AI_COMPLETE."
        )


def filter_(given: LlmFunction) -> Expression:
    """AI_FILTER('question', field, ... [, classify := true]): whether the answer is yes.

    classify: in a join, ask about one row and many of the other table at once; see Task.
    """
    sampling, classifies = given.sampling(), given.option("classify", False)
    prompt = take_prompt(given)
    if not classifies:
        sampling = replace(sampling, labels=_YES_NO)
        call = given.call(_asking_for_labels(prompt, _YES_NO), sampling)
    elif any(isinstance(part, int) for part in prompt.query):
        raise QueryError(
            f"{given.written} sets classify, which needs a text as its prompt. Name columns in "
            "braces: 'Is {a.text} about {b.name}?'."
        )
    else:
        output = Output(ListOf(Leaf("INTEGER")), "INTEGER[]")
        sampling = replace(sampling, labels=(), schema=output.schema)
        call = given.call(prompt, sampling, output, "match")
    return build.compared(build.EQUAL, call, build.text("Yes"))


def score(given: LlmFunction) -> Expression:
    """AI_SCORE('question', field, ... [, labels := ...]): how likely the first label is, 0 to 1.

    If all labels are numbers, the mean that their probabilities give.
    """
    labels = given.labels() or _YES_NO
    sampling = replace(given.sampling(), labels=labels, scored=True)
    prompt = _asking_for_labels(take_prompt(given), labels)
    return given.call(prompt, sampling, Output(Leaf("DOUBLE"), "DOUBLE"), "score")


def classify(given: LlmFunction) -> Expression:
    """AI_CLASSIFY(field, ['label', ...] [, instruction := 'text', multi := true]).

    The value is one of the labels; with `multi` the list of those that apply. A label may be a
    struct {'label': ..., 'description': ...}.
    """
    given.take_config()
    labels, descriptions = _described_labels(given)
    sampling = given.sampling()
    labelled = replace(sampling, labels=labels)  # which checks them, for `multi` too
    mode = given.options.pop("output_mode", "single")
    if mode not in ("single", "multi"):
        raise QueryError(
            f"output_mode of {given.written} is {mode!r}; expected 'single' or 'multi'."
        )
    is_multi = given.option("multi", mode == "multi")
    prompt = _instructed(given, "Classify the data.")
    for description in descriptions:
        prompt = prompt.followed_by(description)
    if not is_multi:
        return given.call(_asking_for_labels(prompt, labels), labelled)
    prompt = prompt.followed_by(f"Answer with all labels that apply. Labels: {', '.join(labels)}.")
    shape = ListOf(Leaf("VARCHAR", labels), distinct=True, most=len(labels))
    return _typed(Output(shape, "VARCHAR[]"), prompt, sampling, given)


def extract(given: LlmFunction) -> Expression:
    """AI_EXTRACT(field, 'name VARCHAR, ...' [, instruction := 'text', retry := true]).

    In place of the type, a JSON Schema, a struct of questions {'name': 'Who wrote it?'} or a list
    of questions, as Snowflake has them.
    """
    sampling, retry = given.sampling(), given.option("retry", False)
    output = _output(given) or _type_of_extract(given)
    return _typed(output, _instructed(given, _EXTRACT), sampling, given, retry=retry)


def _typed(
    output: Output,
    prompt: PromptText,
    sampling: Sampling,
    given: LlmFunction,
    *,
    retry: bool = False,
) -> Expression:
    """A call that answers in JSON."""
    if sampling.stop:
        raise QueryError(
            f"{given.written} sets stop. An answer in JSON ends by itself. Remove stop."
        )
    prompt = prompt.followed_by(f"Answer in JSON: {described(output.whole)}.")
    sampling = replace(sampling, labels=(), schema=output.schema)
    return given.call(prompt, sampling, output, retry=retry)


def _output(given: LlmFunction) -> Output | None:
    value = given.options.pop("output", None)
    if isinstance(value, Node):
        raise QueryError(f"output of {given.written} must be a type as text, e.g. 'name VARCHAR'.")
    if value is None:
        return None
    is_struct = isinstance(value, dict) and all(isinstance(one, str) for one in value.values())
    if is_struct or isinstance(value, tuple | list):
        return _of_questions(value, given)
    return output_of(value, given.database)


def _is_schema(value: dict[str, Any]) -> bool:
    """Whether a struct is a JSON Schema; `type` and its other words may also name questions."""
    kind = value.get("type")
    if isinstance(kind, list | tuple) or kind in _JSON_TYPES or "$ref" in value:
        return True
    return any(not isinstance(value[word], str) for word in _SCHEMA_WORDS & set(value))


def _type_of_extract(given: LlmFunction) -> Output:
    """The type among the arguments: a list, a struct, or a text."""
    questions = given.take(tuple) or given.take(list) or given.take(dict)
    if questions is not None:
        return _of_questions(questions, given)
    found = given.take(str) or given.take(type)
    if found is None:
        raise QueryError(
            f"{given.written} does not say what to extract. Give a type after the field, e.g. "
            "AI_EXTRACT(body, 'name VARCHAR, amount DECIMAL(10,2)')."
        )
    return output_of(found, given.database)


def _of_questions(questions: Any, given: LlmFunction) -> Output:
    if isinstance(questions, dict):
        if _is_schema(questions):
            return output_of(questions, given.database)
        pairs = list(questions.items())
    else:
        pairs = [one if isinstance(one, tuple) else (one, "") for one in questions]
    if not all(len(pair) == 2 and all(isinstance(text, str) for text in pair) for pair in pairs):
        raise QueryError(
            f"{given.written}: the questions must be texts, e.g. {{'name': 'Who wrote it?'}}."
        )
    parts = tuple(Part(name, Leaf("VARCHAR"), about=about) for name, about in pairs)
    shape = StructOf(parts)
    return Output(shape, kind_of(shape))


def _instructed(given: LlmFunction, default: str | Worded) -> PromptText:
    """The prompt of a function whose field goes first: an option, or a text among its arguments."""
    text = given.option("instruction")
    if text is None:
        values = [None if NAMED in node.meta else literal_of(node) for node in given.nodes]
        # A PROMPT, or nothing but a text, is the whole prompt.
        if isinstance(next(iter(values), None), Template if len(values) > 1 else str | Template):
            return take_prompt(given)
        text = given.take(str)
    if not given.nodes and "{" not in (text or ""):
        raise QueryError(
            f"{given.written} has no field. Give a column: {given.name.upper()}(column, ...)."
        )
    if text is None and isinstance(default, Worded):
        return replace(prompt_of("", given), query=(default,))
    return prompt_of(text or str(default), given)


def _described_labels(given: LlmFunction) -> tuple[tuple[str, ...], list[str]]:
    """(the labels, the descriptions of some)."""
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
    items = given.options["labels"]
    if not isinstance(items, tuple | list):
        return given.labels() or (), []
    structs = [one if isinstance(one, dict) else {"label": one} for one in items]
    given.options["labels"] = [one.get("label") for one in structs]
    texts = {str(one.get("label")): one.get("description") for one in structs}
    lines = [f"{label}: {text}" for label, text in texts.items() if isinstance(text, str)]
    return given.labels() or (), lines


def _asking_for_labels(prompt: PromptText, labels: tuple[str, ...]) -> PromptText:
    """The prompt, which says what the labels are unless it names them all already."""
    if names_all((one.json if isinstance(one, Worded) else one for one in prompt.query), labels):
        return prompt
    *others, last = labels
    listing = f"{', '.join(others)} or {last}" if others else last
    return prompt.followed_by(f"Answer {listing}.")
