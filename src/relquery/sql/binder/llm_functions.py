"""The functions that call a model: what each asks, and the SQL around its call.

AI_FILTER('Is it late?', message)            =>  (call = 'Yes')
AI_EXTRACT(body, 'name VARCHAR')             =>  CAST(call AS STRUCT(name VARCHAR))
AI_AGG('What do people praise?', review)     =>  a call with list(review)
AI_RANK('most urgent', text)                 =>  rank() OVER (ORDER BY call DESC)
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from relquery.config import CASCADE
from relquery.errors import QueryError
from relquery.prompt import Sampling
from relquery.sql.binder.arguments import LlmFunction, PromptTemplate, literal_of, no_bag
from relquery.sql.binder.call import (
    BAG,
    FIELD_NAME,
    NAMED,
    PAIRS,
    RANKS,
    SYMMETRIC,
    Kind,
    Worded,
    field_name,
    names_all,
)
from relquery.sql.binder.prompts import set_prompt, take_prompt
from relquery.sql.exchange.arrow import distinct_names
from relquery.sql.parser import build, tree
from relquery.sql.parser.tree import Expression, Node
from relquery.sql.types.given import output_of
from relquery.sql.types.leaves import Leaf
from relquery.sql.types.shape import ListOf, Output, StructField, StructOf, described

_YES_NO = ("Yes", "No")
# What the answer must be, or its labels, follow, which says enough.
_EXTRACT = Worded("Extract from the data what is asked for.", "")
_CLASSIFY = Worded("Classify the data.", "")
# A name without blanks that has a provider or a digit, or of a known family: openai:gpt-mini,
# llama3.1-70b, mistral-large.
_MODEL = re.compile(
    r"[a-z]{2,}:[\w./:@+-]+|(?=.*\d)[a-zA-Z][\w./:-]*"
    r"|(?:claude|deepseek|gemini|gemma|jamba|llama|mistral|mixtral|openai|reka|snowflake)-[\w./:-]*"
)
_JSON_TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")
_SCHEMA_WORDS = {"schema", "json_schema", "properties", "enum", "const", "anyOf", "oneOf", "allOf"}
_CLAUSES = {"where_clause": "WHERE", "having": "HAVING", "group_expressions": "GROUP BY"}


# About a row


def complete(given: LlmFunction) -> Expression:
    """LLM('prompt', field, ... [, output := type]): free text, one of some labels, or a type."""
    if given.name != "llm":
        given.take_config()
        _take_model(given)
    sampling, labels = given.sampling(), given.labels()
    output = given.options.pop("output", None)
    if labels is not None:
        sampling = replace(sampling, labels=labels, schema=None)
    retry = given.option("retry", False)
    take_prompt(given)
    if output is None:
        return given.call(sampling, retry=retry)
    if labels is not None:
        raise QueryError(f"{given.written} sets labels and output. Set one of them.")
    return typed(_type_from(output, given), sampling, given, retry=retry)


def _take_model(given: LlmFunction) -> None:
    """Take the name of a model that stands first, where Snowflake's function has it."""
    first = literal_of(given.nodes[0]) if len(given.nodes) > 1 else None
    if not isinstance(first, str) or NAMED in given.nodes[0].meta:
        return
    if first in given.database.kept.models or _MODEL.fullmatch(first):
        del given.nodes[0]
        given.set_option("model", first)


def filter_(given: LlmFunction) -> Expression:
    """AI_FILTER('question', field, ... [, classify := true]): whether the answer is yes.

    classify: in a join, ask about one row and many of the other table at once; see Task.
    proxy: a cheap model that answers the clear rows; precision, recall, accuracy, confidence: what
    the result must meet then, see Targets. pairs: 'symmetric', 'labels' or both, for two
    fields; see Task.
    threshold: how likely yes must be at least, 0 to 1: AI_SCORE('question', field, ...) >= it.
    """
    classifies, threshold = given.option("classify", False), given.option("threshold")
    if threshold is not None:
        if classifies or not 0 <= threshold <= 1:
            why = "is not for classify" if classifies else "must be from 0 to 1"
            raise QueryError(f"{given.written} sets threshold := {threshold}, which {why}.")
        return build.compared(
            build.AT_LEAST, score(given), build.constant("NUMERIC", repr(threshold))
        )
    for name in (each for each in (*CASCADE, "pairs") if classifies and each in given.options):
        raise QueryError(
            f"{given.written} sets classify and {name}. A call with classify decides about many "
            f"pairs at once. Remove classify, or {name}."
        )
    sampling = given.sampling()
    take_prompt(given)
    if not classifies:
        ask_for_labels(_YES_NO, given)
        sampling, pairs = replace(sampling, labels=_YES_NO), given.pairs(*PAIRS)
        call = given.call(sampling, cascade=given.cascade(), pairs=pairs)
    elif any(isinstance(part, int) for part in given.query):
        raise QueryError(
            f"{given.written} sets classify, which needs a text as its prompt. Name columns in "
            "braces: 'Is {a.text} about {b.name}?'."
        )
    else:
        output = Output(ListOf(Leaf("INTEGER")))
        sampling = replace(sampling, labels=(), schema=output.schema)
        call = given.call(sampling, output, "match")
    return build.compared(build.EQUAL, call, build.text("Yes"))


def score(given: LlmFunction) -> Expression:
    """AI_SCORE('question', field, ... [, labels := ...]): how likely the first label is, 0 to 1.

    If all labels are numbers, the mean that their probabilities give.
    """
    labels = given.labels() or _YES_NO
    sampling = replace(given.sampling(), labels=labels, scored=True)
    take_prompt(given)
    ask_for_labels(labels, given)
    pairs = given.pairs(SYMMETRIC)
    return given.call(sampling, Output(Leaf("DOUBLE")), "score", pairs=pairs)


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
    _take_instruction(given, _CLASSIFY)
    for description in descriptions:
        given.add_line(description)
    if not is_multi:
        ask_for_labels(labels, given)
        return given.call(labelled, cascade=given.cascade())
    given.add_line(f"Answer with all labels that apply. Labels: {', '.join(labels)}.")
    shape = ListOf(Leaf("VARCHAR", labels), distinct=True, most=len(labels))
    return typed(Output(shape), sampling, given)


def extract(given: LlmFunction) -> Expression:
    """AI_EXTRACT(field, 'name VARCHAR, ...' [, instruction := 'text', retry := true]).

    In place of the type, a JSON Schema, a struct of questions {'name': 'Who wrote it?'} or a list
    of questions, as Snowflake has them.
    """
    sampling, retry = given.sampling(), given.option("retry", False)
    wanted = given.options.pop("output", None)
    for kind in (tuple, list, dict, str, type):
        wanted = wanted or given.take(kind)
    if not wanted:
        raise QueryError(
            f"{given.written} does not say what to extract. Give a type after the field, e.g. "
            "AI_EXTRACT(body, 'name VARCHAR, amount DECIMAL(10,2)')."
        )
    output = _type_from(wanted, given)
    _take_instruction(given, _EXTRACT)
    return typed(output, sampling, given, retry=retry)


def typed(
    output: Output,
    sampling: Sampling,
    given: LlmFunction,
    kind: Kind = "row",
    *,
    retry: bool = False,
    redact: tuple[str, ...] = (),
) -> Expression:
    """A call that answers in JSON."""
    if sampling.stop:
        raise QueryError(
            f"{given.written} sets stop. An answer in JSON ends by itself. Remove stop."
        )
    given.add_line(f"Answer in JSON: {described(output.whole)}.")
    sampling = replace(sampling, labels=(), schema=output.schema)
    return given.call(sampling, output, kind, retry=retry, redact=redact)


def _is_schema(value: dict[str, Any]) -> bool:
    """Whether a struct is a JSON Schema; `type` and its other words may also name questions."""
    kind = value.get("type")
    if isinstance(kind, list | tuple) or kind in _JSON_TYPES or "$ref" in value:
        return True
    return any(not isinstance(value[word], str) for word in _SCHEMA_WORDS & set(value))


def _type_from(value: Any, given: LlmFunction) -> Output:
    """The type of answers: as DuckDB names it, a JSON Schema, or questions, with names or not."""
    if isinstance(value, Node):
        raise QueryError(f"output of {given.written} must be a type as text, e.g. 'name VARCHAR'.")
    if isinstance(value, dict) and not _is_schema(value):
        pairs = list(value.items())
    elif isinstance(value, tuple | list):
        pairs = [pair if isinstance(pair, tuple) else (pair, "") for pair in value]
    else:
        return output_of(value, given.database)
    if not all(len(pair) == 2 and all(isinstance(text, str) for text in pair) for pair in pairs):
        raise QueryError(
            f"{given.written}: the questions must be texts, e.g. {{'name': 'Who wrote it?'}}."
        )
    parts = [StructField(name, Leaf("VARCHAR"), about=about) for name, about in pairs]
    return Output(StructOf(tuple(parts)))


def _take_instruction(given: LlmFunction, default: Worded) -> None:
    """Take the prompt of a function whose field goes first: an option, or a text among its
    arguments."""
    text = given.option("instruction")
    if text is None:
        values = [None if NAMED in node.meta else literal_of(node) for node in given.nodes]
        # A PROMPT, or nothing but a text, is the whole prompt.
        if isinstance(
            next(iter(values), None), PromptTemplate if len(values) > 1 else str | PromptTemplate
        ):
            take_prompt(given)
            return
        text = given.take(str)
    if not given.nodes and "{" not in (text or ""):
        raise QueryError(
            f"{given.written} has no field. Give a column: {given.name.upper()}(column, ...)."
        )
    set_prompt(text or "", given)
    if not text:
        given.query = (default,)


def _described_labels(given: LlmFunction) -> tuple[tuple[str, ...], list[str]]:
    """(the labels, the descriptions of some)."""
    labels = given.take(tuple)
    if labels is not None:
        given.options.setdefault("labels", labels)
    if any(
        isinstance(node, tree.FunctionCall) and node.name == "list_value" for node in given.nodes
    ):
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
    structs = [item if isinstance(item, dict) else {"label": item} for item in items]
    given.options["labels"] = [struct.get("label") for struct in structs]
    texts = {str(struct.get("label")): struct.get("description") for struct in structs}
    lines = [f"{label}: {text}" for label, text in texts.items() if isinstance(text, str)]
    return given.labels() or (), lines


def ask_for_labels(labels: tuple[str, ...], given: LlmFunction) -> None:
    """Say in the prompt what the labels are, unless it names them all already."""
    texts = (part.json if isinstance(part, Worded) else part for part in given.query)
    if not names_all(texts, labels):
        *others, last = labels
        choice = f"{', '.join(others)} or {last}" if others else last
        given.add_line(f"Answer {choice}.", f"{choice}?")


# About several rows


def aggregate(given: LlmFunction) -> Expression:
    """AI_AGG('question', field, ...) or AI_AGG(field, 'question'): one answer for a group."""
    question = given.option("instruction") or given.take(str)
    if question is None:
        raise QueryError(
            f"{given.written} has no question. Expected AI_AGG('What do people praise?', column)."
        )
    return _of_group(given, question)


def summarize(given: LlmFunction) -> Expression:
    """AI_SUMMARIZE_AGG(field, ...): a summary of a group."""
    text = given.take(str)
    if text is not None:
        written = text.replace("'", "''")
        raise QueryError(
            f"{given.written} has the text {text!r} among its fields. To say what to do with the "
            f"group, write AI_AGG('{written}', column)."
        )
    return _of_group(given, given.option("instruction", "Summarize the texts."))


def rank(given: LlmFunction) -> Expression:
    """AI_RANK('criterion', field, ...): 1 for the row that fits best.

    The rows are ordered by how likely the model finds that they fit. As a key of ORDER BY it is
    that order itself.
    """
    _check_place(given)
    criterion = given.take(str)
    if criterion is None:
        raise QueryError(
            f"{given.written} has no criterion. Expected AI_RANK('most urgent', column, ...)."
        )
    given.nodes.insert(0, build.text(f"Is this a good match for: {criterion}?"))
    value = score(given)
    key = given.node.parent
    order = key.parent if isinstance(key, tree.Ordered) else None
    if isinstance(order, tree.Order) and isinstance(order.parent, tree.Query):
        return build.operator("-", build.number(1), value)
    window = tree.Window(
        type="WINDOW_RANK",
        function_name="rank",
        orders=[tree.Ordered(type="DESCENDING", null_order="NULLS LAST", expression=value)],
        start="UNBOUNDED_PRECEDING",
        end="CURRENT_ROW_RANGE",
    )
    ranks = build.when(build.operation(build.IS_NOT_NULL, value.copy()), window)
    ranks.meta[RANKS] = True
    return ranks


def _check_place(given: LlmFunction) -> None:
    """Raises QueryError where a row has no rank yet, or where it may be of another group."""
    node: Node = given.node
    for parent in given.node.ancestors():
        if isinstance(parent, tree.Select):
            where = _CLAUSES.get(node.place)
        elif isinstance(parent, tree.Join):
            where = "the condition of a join"
        elif isinstance(parent, tree.Window):
            where = "a window function"
        elif isinstance(parent, tree.FunctionCall) and given.is_aggregate(parent):
            where = "an aggregate"
        else:
            node = parent
            continue
        if where is not None:
            raise QueryError(
                f"{given.written} is in {where}, where rows have no rank yet. Write QUALIFY "
                "AI_RANK(...) <= 10, compute the rank in a subquery, or use AI_SCORE."
            )
        return


def _of_group(given: LlmFunction, question: str) -> Expression:
    for field in given.nodes:
        if field.meta.get(BAG):
            raise no_bag(field)
    node, items = given.node, _items(given)
    listed = build.function("array_agg", items)
    listed.distinct = node.distinct
    listed.set("order_bys", tree.Order(orders=[key.copy() for key in node.orders]))
    own = [] if node.filter is None else [node.filter.copy()]
    values = [items] if len(given.nodes) == 1 else given.nodes
    known = build.any_of(build.operation(build.IS_NOT_NULL, value.copy()) for value in values)
    listed.filter = build.all_of([*own, known])
    listed.meta[FIELD_NAME] = "texts"
    # The question stands for itself: the names in it mean no fields.
    given.nodes, given.knows = [], lambda column: False
    set_prompt(question, given)
    given.fields = [listed]
    call = given.call(replace(given.sampling(), labels=()), kind="group")
    return build.when(build.operation(build.IS_NOT_NULL, listed.copy()), call)


def _items(given: LlmFunction) -> Expression:
    if not given.nodes:
        raise QueryError(f"{given.written} has no field. Expected AI_AGG('question', column).")
    first, *others = given.nodes
    if not others:  # `t.*` is the row of t as one value
        if isinstance(first, tree.Star) and first.table:
            return build.column(first.table)
        return first.copy()
    names = distinct_names([node.meta.get(FIELD_NAME) or field_name(node) for node in given.nodes])
    made = build.function("struct_pack")
    made.arguments = [
        tree.Argument(name=name, expression=node.copy())
        for name, node in zip(names, given.nodes, strict=True)
    ]
    return made


Binder = Callable[[LlmFunction], Expression]

FUNCTIONS: dict[str, tuple[Binder, tuple[str, ...]]] = {
    "llm": (complete, ("labels", "output", "retry")),
    "ai_complete": (complete, ("labels", "output", "retry")),
    "ai_filter": (filter_, ("classify", "threshold", "pairs", *CASCADE)),
    "ai_classify": (
        classify,
        ("labels", "instruction", "multi", "proxy", "accuracy", "confidence"),
    ),
    "ai_score": (score, ("labels", "pairs")),
    "ai_extract": (extract, ("output", "instruction", "retry")),
    "ai_agg": (aggregate, ("instruction",)),
    "ai_summarize_agg": (summarize, ("instruction",)),
    "ai_rank": (rank, ("labels",)),
}
"""What makes the value of each function, and the options that it has beside those of all."""
