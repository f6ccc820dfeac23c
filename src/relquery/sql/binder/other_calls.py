"""How calls of Snowflake's, BigQuery's and Databricks' functions are written here.

Arguments are texts of SQL, as the user wrote them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from relquery.sql.names import quoted_text
from relquery.sql.parser.tokens import Token, between_commas, closing, on_top, tokenize

_TYPES = {"STRING": "VARCHAR", "INT64": "BIGINT", "FLOAT64": "DOUBLE", "BOOL": "BOOLEAN",
          "BYTES": "BLOB", "INT": "INTEGER", "ARRAY<STRING>": "VARCHAR[]"}  # fmt: skip
_LABELS = {
    "person": "NAME", "name": "NAME", "first_name": "NAME", "last_name": "NAME",
    "phone": "PHONE_NUMBER", "phone number": "PHONE_NUMBER", "location": "ADDRESS",
    "social security number": "NATIONAL_ID", "ssn": "NATIONAL_ID", "dob": "DATE_OF_BIRTH",
    "date of birth": "DATE_OF_BIRTH", "credit card": "PAYMENT_CARD_DATA",
    "credit card number": "PAYMENT_CARD_DATA", "street_address": "ADDRESS", "iban": "BANK_ACCOUNT",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Call:
    """A call as another system writes it. texts: its arguments by place. named: by name, in lower
    case."""

    name: str
    texts: tuple[str, ...]
    named: dict[str, str]

    def get(self, place: int, *names: str) -> str | None:
        """An argument by one of its names, or by its place."""
        found = next((self.named[name] for name in names if name in self.named), None)
        return found or (self.texts[place] if place < len(self.texts) else None)

    def need(self, place: int, *names: str) -> str:
        """The same; a column named like it where it is missing."""
        return self.get(place, *names) or (names[0] if names else "column")


Writer = Callable[[Call], str | None]
"""What to write in place of a call; None if it is ours as it is."""


def texts_in(sql: str, tokens: Sequence[Token]) -> list[str]:
    """The arguments between commas, as they are written."""
    return [sql[part[0].start : part[-1].end] for part in between_commas(tokens)]


def as_text(argument: str) -> str:
    """An argument; in double quotes it is a text where the system takes these for texts."""
    is_one = argument.startswith('"') and argument.endswith('"') and '"' not in argument[1:-1]
    return quoted_text(argument[1:-1]) if is_one else argument


# Arguments


def _prompt(argument: str | None) -> str:
    """A prompt as its text and its fields.

    'Is it late? ' || message     =>  'Is it late?', message
    ('Is ', a, ' like ', b, '?')  =>  PROMPT('Is {0} like {1}?', a, b)
    """
    argument = argument or "prompt"
    parts = [one for part in _joined(argument) for one in _joined(part)]
    parts = [as_text(one) for one in parts]
    fields = [one for one in parts if not _is_text(one)]
    if not fields:
        return quoted_text("".join(map(_value, parts)))
    if len(parts) == 1:
        return argument
    if _is_text(parts[0]) and not any(map(_is_text, parts[1:])):
        return ", ".join([quoted_text(_value(parts[0]).strip()), *fields])
    numbers = iter(range(len(fields)))
    text = "".join(_value(one) if _is_text(one) else f"{{{next(numbers)}}}" for one in parts)
    return f"PROMPT({', '.join([quoted_text(text), *fields])})"


def _joined(argument: str) -> list[str]:
    """The parts of a text that is put together: a || b, CONCAT(a, b), (a, b)."""
    tokens = tokenize(argument)
    if not tokens:
        return [argument]
    words = [tokens[0].word, *(one.text for one in tokens[1:2])]
    opening = 0 if tokens[0].text == "(" else 1 if words == ["CONCAT", "("] else None
    if words == ["STRUCT", "("]:
        opening = 1
    if opening is not None and closing(tokens, opening) == len(tokens) - 1:
        return texts_in(argument, tokens[opening + 1 : -1])
    signs = [at for at in on_top(tokens) if tokens[at].text == "||"]
    begins, ends = [0, *(at + 1 for at in signs)], [*signs, len(tokens)]
    return [
        argument[tokens[begin].start : tokens[end - 1].end]
        for begin, end in zip(begins, ends, strict=True)
        if end > begin
    ]


def _is_text(argument: str) -> bool:
    return argument.startswith("'") and len(tokenize(argument)) == 1


def _value(argument: str) -> str:
    return argument[1:-1].replace("''", "'")


def _typed(written: str | None) -> str:
    """An option for the type of answers."""
    if written is None or _value(written).upper() == "STRING":
        return ""
    names = re.sub(
        r"[A-Z]+\d*(?:<[A-Z]+>)?", lambda found: _TYPES.get(found[0], found[0]), _value(written)
    )
    return f", output := {quoted_text(names) if _is_text(written) else written}"


def _settings(written: str | None) -> str:
    """Options in place of a struct of them."""
    if written is None or not written.startswith("{"):
        return ""
    pairs = [one.partition(":") for one in texts_in(written, tokenize(written)[1:-1])]
    known = ((key.strip(" '\""), value.strip()) for key, _, value in pairs)
    return "".join(f", {key} := {value}" for key, value in known if key in _SAMPLED)


_SAMPLED = ("max_tokens", "temperature", "top_p", "top_k", "seed")


def name_of(path: str) -> str:
    """The last part of a path, in quotes if it needs them."""
    name = path.rpartition(".")[2]
    return name if re.fullmatch(r"[^\W\d]\w*", name) else f'"{name}"'


def _rows(argument: str | None) -> str:
    """What follows FROM: TABLE t => t; a query in parentheses as it is."""
    text = (argument or "t").strip()
    if text.upper().startswith("TABLE"):
        path = text[5:].strip().removeprefix("(").removesuffix(")")
        return name_of(path.strip('"'))
    return text


def _struct(argument: str | None) -> dict[str, str]:
    """The values of STRUCT(1 AS a, 'x' AS b), by name."""
    tokens = tokenize(argument or "")
    if not tokens or tokens[0].word != "STRUCT":
        return {}
    found = {}
    for part in between_commas(tokens[2:-1]):
        if len(part) > 2 and part[-2].word == "AS":
            found[part[-1].name.lower()] = (argument or "")[part[0].start : part[-3].end]
    return found


# Calls


def _complete(place: int, *names: str) -> Writer:
    def write(call: Call) -> str:
        options = call.named.get("modelparameters") or call.named.get("options")
        kind = _typed(call.get(9, "returntype", "output_schema"))
        form = call.named.get("responseformat") or call.named.get("response_format")
        kind = f", output := {form}" if form and not kind else kind
        messages = call.need(place, *names)
        if messages.startswith("["):  # a chat: what was said last
            said = re.findall(r"'content' ?: ?('(?:[^']|'')*'|\w+)", messages)
            messages = said[-1] if said else messages
            options = options or call.get(place + 1)
        return f"AI_COMPLETE({_prompt(messages)}{kind}{_settings(options)})"

    return write


def _asked(name: str, kind: str = "") -> Writer:
    return lambda call: f"{name}({_prompt(call.get(0, 'prompt'))}{kind})"


def _first(form: str, *names: str) -> Writer:
    """A call with the first argument alone, which may have a name."""
    return lambda call: form.format(_one(call.need(0, *names)))


def _one(argument: str) -> str:
    """Several columns as fields: ('Title: ', title, body) => title, body."""
    parts = _joined(argument)
    fields = [one for one in parts if not _is_text(one)]
    return ", ".join(fields or [_prompt(argument)])


def _classified(call: Call) -> str:
    labels = call.need(1, "categories", "labels")
    tuples = [_joined(one) for one in texts_in(labels, tokenize(labels)[1:-1])]
    if labels.startswith("[") and tuples and all(len(one) == 2 for one in tuples):
        described = (f"{{'label': {one}, 'description': {two}}}" for one, two in tuples)
        labels = f"[{', '.join(described)}]"
    mode = call.named.get("output_mode", "")
    several = ", multi := true" if "multi" in mode.lower() else ""
    return f"AI_CLASSIFY({_one(call.need(0, 'input', 'content'))}, {labels}{several})"


def _masked(call: Call) -> str:
    labels = [_value(one) for one in texts_in(call.need(1), tokenize(call.need(1))[1:-1])]
    kinds = [_LABELS.get(one.lower(), one.upper().replace(" ", "_")) for one in labels]
    return f"AI_REDACT({call.need(0)}, [{', '.join(map(quoted_text, kinds))}])"


def _two(call: Call) -> str | None:
    if len(call.texts) < 3 and not call.named:
        return None
    pair = call.need(0, "content1", "input1"), call.need(1, "content2", "input2")
    return f"AI_SIMILARITY({', '.join(pair)})"


def _embedded(call: Call) -> str | None:
    return f"AI_EMBED({call.texts[1]})" if len(call.texts) > 1 else None


def _generated(call: Call) -> str:
    """AI.GENERATE_TABLE and the like as a subquery."""
    settings = _struct(call.get(2))
    limit = settings.get("max_output_tokens", "")
    options = (f", max_tokens := {limit}" if limit else "") + (
        f", temperature := {settings['temperature']}" if "temperature" in settings else ""
    )
    kind = _typed(settings.get("output_schema"))
    value = f"AI_COMPLETE(prompt{kind}{options})"
    value = f"unnest({value})" if kind else f"{value} AS result"
    return f"(SELECT *, {value} FROM {_rows(call.get(1))})"


def _over_rows(value: str) -> Writer:
    """A table function with a model as a subquery. value: an item over its rows."""

    def write(call: Call) -> str:
        target = _struct(call.get(2)).get("target_language_code", "'en'")
        return f"(SELECT *, {value.format(target=target)} FROM {_rows(call.get(1))})"

    return write


def _searched(call: Call) -> str:
    """VECTOR_SEARCH(TABLE t, 'column', 'text', top_k => 3) and Databricks' form."""
    index, text = call.named.get("index"), call.named.get("query_text") or call.named.get("query")
    count = call.named.get("num_results") or call.named.get("top_k") or "5"
    if index is not None:
        return f"AI_SEARCH({quoted_text(name_of(_value(index)))}, {text}, {count})"
    table, column = _rows(call.get(0)), call.need(1)
    return f"AI_SEARCH({quoted_text(table)}, {text or call.need(2)}, {count}, {column})"


OF_CORTEX = {
    "complete", "try_complete", "classify_text", "embed_text_768", "embed_text_1024",
    "extract_answer", "sentiment", "entity_sentiment", "summarize", "translate", "count_tokens",
}  # fmt: skip
"""Names in Snowflake's schema alone."""
OF_DATABRICKS = {"ai_query", "ai_gen", "ai_mask", "ai_analyze_sentiment", "ai_fix_grammar"}
WRITERS: dict[str, Writer] = {
    # Snowflake
    "cortex.complete": _complete(1, "prompt"),
    "cortex.try_complete": _complete(1, "prompt"),
    "cortex.classify_text": lambda call: f"AI_CLASSIFY({call.need(0)}, {call.need(1)})",
    "cortex.embed_text_768": _embedded,
    "cortex.embed_text_1024": _embedded,
    "cortex.extract_answer": lambda call: f"AI_COMPLETE({call.need(1)}, {call.need(0)})",
    "cortex.sentiment": _first("2 * AI_SCORE('Is the sentiment of the text positive?', {}) - 1"),
    "cortex.entity_sentiment": lambda call: f"AI_SENTIMENT({', '.join(call.texts)})",
    "cortex.summarize": _first("AI_SUMMARIZE({})"),
    "cortex.translate": lambda call: f"AI_TRANSLATE({', '.join(call.texts)})",
    "cortex.count_tokens": lambda call: f"AI_COUNT_TOKENS({call.texts[-1]})",
    "ai_embed": _embedded,
    "ai_similarity": _two,
    # Databricks
    "ai_query": _complete(1, "request"),
    "ai_gen": _asked("AI_COMPLETE"),
    "ai_analyze_sentiment": _first("AI_SENTIMENT({})"),
    "ai_fix_grammar": _first("AI_COMPLETE('Correct the grammar of the text.', {})"),
    "ai_mask": _masked,
    "vector_search": _searched,
    # BigQuery
    "ai.generate": _complete(0, "prompt"),
    "ai.generate_bool": _asked("AI_FILTER"),
    "ai.generate_int": _asked("AI_COMPLETE", ", output := 'BIGINT'"),
    "ai.generate_double": _asked("AI_COMPLETE", ", output := 'DOUBLE'"),
    "ai.if": _asked("AI_FILTER"),
    "ai.score": _asked("AI_SCORE"),
    "ai.classify": _classified,
    "ai.agg": lambda call: f"AI_AGG({_one(call.need(0))}, {call.need(1)})",
    "ai.embed": _first("AI_EMBED({})", "content"),
    "ai.similarity": lambda call: _two(call) or f"AI_SIMILARITY({', '.join(call.texts)})",
    "ai.count_tokens": _first("AI_COUNT_TOKENS({})"),
    "ai.search": _searched,
    "ai.generate_table": _generated,
    "ai.generate_text": _generated,
    "ml.generate_text": _generated,
    "ai.generate_embedding": _over_rows("AI_EMBED(content) AS embedding"),
    "ml.generate_embedding": _over_rows("AI_EMBED(content) AS embedding"),
    "ml.translate": _over_rows("AI_TRANSLATE(text_content, '', {target}) AS translation"),
    "ml.understand_text": _over_rows("AI_SENTIMENT(text_content) AS sentiment"),
    # AlloyDB, and DuckDB's community extension
    "ai_generate": lambda call: f"AI_COMPLETE({', '.join(call.texts)})",
    "ai_if": lambda call: f"AI_FILTER({', '.join(call.texts)})",
    "llm_complete": lambda call: f"AI_COMPLETE({_flock(call)})",
    "llm_filter": lambda call: f"AI_FILTER({_flock(call)})",
    "llm_reduce": lambda call: f"AI_AGG({_flock(call)})",
    "llm_rerank": lambda call: f"AI_RANK({_flock(call)})",
}


def _flock(call: Call) -> str:
    """({'model_name': 'x'}, {'prompt': 'text'}, {'review': review}) => 'text', review."""
    found = list[str]()
    for one in call.texts:
        pairs = texts_in(one, tokenize(one)[1:-1]) if one.startswith("{") else []
        values = [pair.partition(":")[2].strip() for pair in pairs] or [one]
        found += [] if "model_name" in one else values
    return ", ".join(found)


_SOUND = "A model here reads text: transcribe the recordings first, and register their texts."
_PAGES = "A model here reads text: turn the documents into text first, and register it."
_SERIES = "It forecasts numbers. Compute it beside relquery, and register the rows."
NOT_HERE = {
    "ai_transcribe": _SOUND, "ml.transcribe": _SOUND, "ai_parse_document": _PAGES,
    "parse_document": _PAGES, "ml.process_document": _PAGES, "ml.annotate_image": _PAGES,
    "ai_generate_image": "A model here writes text.",
    "ai_forecast": _SERIES, "ai.forecast": _SERIES,
    "obj.get_access_url": _PAGES,
    "ai_prep_search": "Write passages('table', question), which indexes the table itself.",
    "finetune": "Train the model elsewhere, and open it: rq.connect('BASE+ADAPTER').",
    "search_preview": "Write AI_SEARCH('table', question, k).",
    "split_text_recursive_character": "Split the text with DuckDB's regexp_split_to_array.",
}  # fmt: skip
"""Functions with nothing like them here, and what to do instead."""
