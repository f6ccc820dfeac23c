"""What to write in place of functions of Snowflake, BigQuery and Databricks, in the query's own
arguments.

    ai_query('endpoint', 'Summarize: ' || review)    AI_COMPLETE('Summarize:', review)
    AI.IF(('Is it late? ', message))                 AI_FILTER('Is it late?', message)
    ML.GENERATE_TEXT(MODEL m, TABLE t)               (SELECT *, AI_COMPLETE(prompt) AS ... FROM t)

Statements are read by their tokens, as DuckDB's parser does not take the forms of other systems.
Arguments are texts of SQL, as the user wrote them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from relquery.errors import RelqueryError
from relquery.sql import names as ours
from relquery.sql.host.database import Database
from relquery.sql.names import quoted_text
from relquery.sql.parser.tokens import Token, between_commas, closing, on_top, tokenize

FORMS = {
    # Snowflake: names in its schema
    "cortex.complete": "AI_COMPLETE({complete 1 prompt})",
    "cortex.try_complete": "AI_COMPLETE({complete 1 prompt})",
    "cortex.classify_text": "AI_CLASSIFY({text 0}, {text 1})",
    "cortex.embed_text_768": "AI_EMBED({last})",
    "cortex.embed_text_1024": "AI_EMBED({last})",
    "cortex.extract_answer": "AI_COMPLETE({text 1}, {text 0})",
    "cortex.sentiment": "2 * AI_SCORE('Is the sentiment of the text positive?', {fields 0}) - 1",
    "cortex.entity_sentiment": "AI_SENTIMENT({all})",
    "cortex.summarize": "AI_SUMMARIZE({fields 0})",
    "cortex.translate": "AI_TRANSLATE({all})",
    "cortex.count_tokens": "AI_COUNT_TOKENS({last})",
    # and elsewhere
    "ai_embed": "AI_EMBED({last})",
    "ai_similarity": "AI_SIMILARITY({pair})",
    # Databricks
    "ai_query": "AI_COMPLETE({complete 1 request})",
    "ai_gen": "AI_COMPLETE({asked 0 prompt})",
    "ai_analyze_sentiment": "AI_SENTIMENT({fields 0})",
    "ai_fix_grammar": "AI_COMPLETE('Correct the grammar of the text.', {fields 0})",
    "ai_mask": "AI_REDACT({text 0}, {kinds 1})",
    "vector_search": "{searched}",
    # BigQuery
    "ai.generate": "AI_COMPLETE({complete 0 prompt})",
    "ai.generate_bool": "AI_FILTER({asked 0 prompt})",
    "ai.generate_int": "AI_COMPLETE({asked 0 prompt}, output := 'BIGINT')",
    "ai.generate_double": "AI_COMPLETE({asked 0 prompt}, output := 'DOUBLE')",
    "ai.if": "AI_FILTER({asked 0 prompt})",
    "ai.score": "AI_SCORE({asked 0 prompt})",
    "ai.classify": "AI_CLASSIFY({fields 0 input content}, {labels 1 categories labels})",
    "ai.agg": "AI_AGG({fields 0}, {text 1})",
    "ai.embed": "AI_EMBED({fields 0 content})",
    "ai.similarity": "AI_SIMILARITY({pair})",
    "ai.count_tokens": "AI_COUNT_TOKENS({fields 0})",
    "ai.search": "{searched}",
    "ai.generate_table": "(SELECT *, {generated} FROM {rows 1})",
    "ai.generate_text": "(SELECT *, {generated} FROM {rows 1})",
    "ml.generate_text": "(SELECT *, {generated} FROM {rows 1})",
    "ai.generate_embedding": "(SELECT *, AI_EMBED(content) AS embedding FROM {rows 1})",
    "ml.generate_embedding": "(SELECT *, AI_EMBED(content) AS embedding FROM {rows 1})",
    "ml.translate": "(SELECT *, AI_TRANSLATE(text_content, '', {language}) AS translation "
    "FROM {rows 1})",
    "ml.understand_text": "(SELECT *, AI_SENTIMENT(text_content) AS sentiment FROM {rows 1})",
    # AlloyDB, and DuckDB's community extension
    "ai_generate": "AI_COMPLETE({all})",
    "ai_if": "AI_FILTER({all})",
    "llm_complete": "AI_COMPLETE({structs})",
    "llm_filter": "AI_FILTER({structs})",
    "llm_reduce": "AI_AGG({structs})",
    "llm_rerank": "AI_RANK({structs})",
}
"""How calls are written here. A brace has a part of the call, see PARTS, the place of an argument,
and the names that it may have."""
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
_TYPES = {"STRING": "VARCHAR", "INT64": "BIGINT", "FLOAT64": "DOUBLE", "BOOL": "BOOLEAN",
          "BYTES": "BLOB", "INT": "INTEGER", "ARRAY<STRING>": "VARCHAR[]"}  # fmt: skip
_KINDS = {
    "person": "NAME", "first_name": "NAME", "last_name": "NAME", "phone": "PHONE_NUMBER",
    "location": "ADDRESS", "social security number": "NATIONAL_ID", "ssn": "NATIONAL_ID",
    "dob": "DATE_OF_BIRTH", "credit card": "PAYMENT_CARD_DATA", "street_address": "ADDRESS",
    "credit card number": "PAYMENT_CARD_DATA", "iban": "BANK_ACCOUNT",
}  # fmt: skip
_SETTINGS = ("max_tokens", "temperature", "top_p", "top_k", "seed")
_QUOTED = re.compile(r"`([^`]*)`")
_BRACE = re.compile(r"\{(\w+)(?: (\d))?((?: \w+)*)\}")


def advice(sql: str, database: Database) -> str | None:
    """What to write in place of a text with functions of other systems; None if it has none."""
    plain = _QUOTED.sub(lambda found: _name_of(found[1]), sql.encode(errors="replace").decode())
    defined = set[str]()
    with suppress(RelqueryError):
        defined = database.macros()
    name, text = _rewritten(plain, defined)
    if not name:
        return None
    if text is None:
        return f"There is no function {name} here. {NOT_HERE[name.lower()]}"
    return f"{name} is written in another way here. Write: {text.strip().rstrip(';')}"


def _rewritten(sql: str, defined: set[str]) -> tuple[str, str | None]:
    """(the first call that is another system's, the text with ours); "" if there is none. None for
    a call that has nothing like it here."""
    first, parts, end, at, tokens = "", list[str](), 0, 0, tokenize(sql)
    while at < len(tokens):
        path, opening = _path(tokens, at)
        if opening is None or path in defined:
            at += 1
            continue
        last = closing(tokens, opening)
        if (bare := path.removeprefix("cortex.")) in NOT_HERE:
            return bare.upper(), None
        texts, changed = list[str](), path.startswith("cortex.")
        for one in _parts(sql, tokens[opening + 1 : last]):
            name, inner = _rewritten(one, defined)
            texts.append(_literal(inner or one if name else one))
            changed |= texts[-1] != one
        path = path if path in FORMS else bare
        plain = f"{path.upper()}({', '.join(texts)})"
        text = _written(path, texts) if path in FORMS else plain
        if changed or text != plain:
            first = first or path.upper()
            is_struct = path.startswith(("ai.", "ml.")) and last + 1 < len(tokens)
            if is_struct and tokens[last + 1].text == ".":  # the value has no object around it
                last += 2
            parts += [sql[end : tokens[at].start], text]
            end = tokens[last].end
        at = last + 1
    return first, "".join((*parts, sql[end:]))


def _path(tokens: Sequence[Token], at: int) -> tuple[str, int | None]:
    """(the name of a call at a token, in lower case, the place of the parenthesis behind it); None
    where no function that is known here is called."""
    names = list[str]()
    if at and tokens[at - 1].text == ".":
        return "", None
    while at + 1 < len(tokens) and tokens[at].is_name:
        names.append(tokens[at].name.lower())
        if tokens[at + 1].text == "(":
            path = ".".join(names).removeprefix("snowflake.")
            is_known = path in FORMS or path in NOT_HERE or path in ours.FUNCTIONS
            return path, at + 1 if is_known or path.startswith("cortex.") else None
        if tokens[at + 1].text != ".":
            break
        at += 2
    return "", None


def _literal(text: str) -> str:
    """Lists and structs in our form: ARRAY('a', 'b'), OBJECT_CONSTRUCT('a', 1)."""
    tokens = tokenize(text)
    name = tokens[0].word if len(tokens) > 2 and tokens[1].text in "([" else ""
    if name not in ("ARRAY", "ARRAY_CONSTRUCT", "OBJECT_CONSTRUCT", "NAMED_STRUCT"):
        return text
    items = _parts(text, tokens[2 : closing(tokens, 1)])
    if name.startswith("ARRAY"):
        return f"[{', '.join(map(_literal, items))}]"
    pairs = zip(items[::2], map(_literal, items[1::2]), strict=False)
    return f"{{{', '.join(f'{key}: {value}' for key, value in pairs)}}}"


@dataclass(frozen=True, slots=True)
class _OtherCall:
    """A call as another system writes it."""

    texts: Sequence[str]
    """Its arguments by place."""
    named: dict[str, str]
    """Those with a name, by this in lower case."""

    def get(self, place: int, *names: str) -> str | None:
        """An argument by one of its names, or by its place."""
        found = next((self.named[name] for name in names if name in self.named), None)
        return found or (self.texts[place] if place < len(self.texts) else None)


def _written(path: str, arguments: Sequence[str]) -> str:
    """A call in our form."""
    texts, named = list[str](), dict[str, str]()
    for argument in arguments:
        tokens = tokenize(argument)
        if len(tokens) > 2 and tokens[1].text in ("=>", ":="):
            named[tokens[0].name.lower()] = _literal(argument[tokens[1].end :].strip())
        else:
            takes_quotes = path.startswith(("cortex.", "ai_")) and path not in _OF_DATABRICKS
            texts.append(argument if takes_quotes else _as_text(argument))
    call = _OtherCall(texts, named)

    def part(found: re.Match[str]) -> str:
        place, names = int(found[2] or 0), found[3].split()
        return PARTS[found[1]](call, place, call.get(place, *names) or (*names, "column")[0])

    return _BRACE.sub(part, FORMS[path])


_OF_DATABRICKS = ("ai_query", "ai_gen", "ai_mask", "ai_analyze_sentiment", "ai_fix_grammar")


# Arguments


def _parts(sql: str, tokens: Sequence[Token]) -> list[str]:
    """The arguments between commas, as they are written."""
    return [sql[part[0].start : part[-1].end] for part in between_commas(tokens)]


def _inside(text: str) -> list[str]:
    """What is in the brackets around a text."""
    return _parts(text, tokenize(text)[1:-1])


def _as_text(argument: str) -> str:
    """An argument; in double quotes it is a text where the system takes these for texts."""
    is_one = argument.startswith('"') and argument.endswith('"') and '"' not in argument[1:-1]
    return quoted_text(argument[1:-1]) if is_one else argument


def _is_text(argument: str) -> bool:
    return argument.startswith("'") and len(tokenize(argument)) == 1


def _value(argument: str) -> str:
    return argument[1:-1].replace("''", "'")


def _name_of(path: str) -> str:
    """The last part of a path, in quotes if it needs them."""
    name = path.rpartition(".")[2]
    return name if re.fullmatch(r"[^\W\d]\w*", name) else f'"{name}"'


def _joined(argument: str) -> list[str]:
    """The parts of a text that is put together: a || b, CONCAT(a, b), (a, b)."""
    tokens = tokenize(argument)
    if not tokens:
        return [argument]
    opening = 1 if tokens[0].word in ("CONCAT", "STRUCT") and len(tokens) > 1 else 0
    if tokens[opening].text == "(" and closing(tokens, opening) == len(tokens) - 1:
        return _parts(argument, tokens[opening + 1 : -1])
    signs = [at for at in on_top(tokens) if tokens[at].text == "||"]
    begins, ends = [0, *(at + 1 for at in signs)], [*signs, len(tokens)]
    return [
        argument[tokens[begin].start : tokens[end - 1].end]
        for begin, end in zip(begins, ends, strict=True)
        if end > begin
    ]


def _prompt(argument: str) -> str:
    """A prompt as its text and its fields.

    'Is it late? ' || message     =>  'Is it late?', message
    ('Is ', a, ' like ', b, '?')  =>  PROMPT('Is {0} like {1}?', a, b)
    """
    parts = [_as_text(one) for part in _joined(argument) for one in _joined(part)]
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


def _fields(argument: str) -> str:
    """Several columns as fields: ('Title: ', title, body) => title, body."""
    fields = [one for one in _joined(argument) if not _is_text(one)]
    return ", ".join(fields or [_prompt(argument)])


def _output(written: str | None) -> str:
    """An option for the type of answers."""
    if written is None or _value(written).upper() == "STRING":
        return ""
    if not _is_text(written):
        return f", output := {written}"
    names = r"[A-Z]+\d*(?:<[A-Z]+>)?"
    known = re.sub(names, lambda found: _TYPES.get(found[0], found[0]), _value(written))
    return f", output := {quoted_text(known)}"


def _complete(call: _OtherCall, place: int, messages: str) -> str:
    """A prompt or the last message of a chat, with the options of a completion."""
    options = call.named.get("modelparameters") or call.named.get("options") or ""
    form = call.named.get("responseformat") or call.named.get("response_format")
    kind = _output(call.get(9, "returntype", "output_schema"))
    if messages.startswith("["):
        said = re.findall(r"'content' ?: ?('(?:[^']|'')*'|\w+)", messages)
        messages = said[-1] if said else messages
        options = options or call.get(place + 1) or ""
    pairs = [one.partition(":") for one in _inside(options)] if options.startswith("{") else []
    known = ((key.strip(" '\""), value.strip()) for key, _, value in pairs)
    settings = "".join(f", {key} := {value}" for key, value in known if key in _SETTINGS)
    return _prompt(messages) + (kind or (f", output := {form}" if form else "")) + settings


def _labels(call: _OtherCall, place: int, labels: str) -> str:
    """Labels, with descriptions if they have some: [('food', 'meals')]."""
    tuples = [_joined(one) for one in _inside(labels)]
    if labels.startswith("[") and tuples and all(len(one) == 2 for one in tuples):
        described = (f"{{'label': {one}, 'description': {two}}}" for one, two in tuples)
        labels = f"[{', '.join(described)}]"
    is_multi = "multi" in call.named.get("output_mode", "").lower()
    return f"{labels}, multi := true" if is_multi else labels


def _kinds(call: _OtherCall, place: int, labels: str) -> str:
    """Labels of personal data as our kinds."""
    names = [_value(one) for one in _inside(labels)]
    kinds = [_KINDS.get(one.lower(), one.upper().replace(" ", "_")) for one in names]
    return f"[{', '.join(map(quoted_text, kinds))}]"


def _rows(argument: str) -> str:
    """What follows FROM: TABLE t => t; a query in parentheses as it is."""
    if not argument.upper().startswith("TABLE"):
        return argument
    path = argument[5:].strip().removeprefix("(").removesuffix(")")
    return _name_of(path.strip('"'))


def _struct(argument: str | None) -> dict[str, str]:
    """The values of STRUCT(1 AS a, 'x' AS b), by name."""
    tokens, text = tokenize(argument or ""), argument or ""
    if not tokens or tokens[0].word != "STRUCT":
        return {}
    parts = [part for part in between_commas(tokens[2:-1]) if len(part) > 2]
    named = [part for part in parts if part[-2].word == "AS"]
    return {part[-1].name.lower(): text[part[0].start : part[-3].end] for part in named}


def _generated(call: _OtherCall, place: int, text: str) -> str:
    """The item of AI.GENERATE_TABLE and the like, whose settings are a STRUCT."""
    settings = _struct(call.get(2))
    kind = _output(settings.get("output_schema"))
    names = {"max_output_tokens": "max_tokens", "temperature": "temperature"}
    given = (
        f", {option} := {settings[name]}" for name, option in names.items() if name in settings
    )
    value = f"AI_COMPLETE(prompt{kind}{''.join(given)})"
    return f"unnest({value})" if kind else f"{value} AS result"


def _searched(call: _OtherCall, place: int, table: str) -> str:
    """VECTOR_SEARCH(TABLE t, 'column', 'text', top_k => 3) and Databricks' form."""
    index, text = call.named.get("index"), call.named.get("query_text") or call.named.get("query")
    count = call.named.get("num_results") or call.named.get("top_k") or "5"
    if index is not None:
        return f"AI_SEARCH({quoted_text(_name_of(_value(index)))}, {text}, {count})"
    column, text = call.get(1) or "column", text or call.get(2) or "column"
    return f"AI_SEARCH({quoted_text(_rows(call.get(0) or 't'))}, {text}, {count}, {column})"


def _structs(call: _OtherCall, place: int, text: str) -> str:
    """({'model_name': 'x'}, {'prompt': 'text'}, {'review': review}) => 'text', review."""
    found = list[str]()
    for one in call.texts:
        pairs = _inside(one) if one.startswith("{") else []
        values = [pair.partition(":")[2].strip() for pair in pairs] or [one]
        found += [] if "model_name" in one else values
    return ", ".join(found)


PARTS: dict[str, Callable[[_OtherCall, int, str], str]] = {
    "text": lambda call, place, text: text,
    "all": lambda call, place, text: ", ".join(call.texts),
    "last": lambda call, place, text: "".join(call.texts[-1:]),
    "pair": lambda call, place, text: ", ".join(
        filter(None, (call.get(0, "content1", "input1"), call.get(1, "content2", "input2")))
    ),
    "asked": lambda call, place, text: _prompt(text),
    "fields": lambda call, place, text: _fields(text),
    "rows": lambda call, place, text: _rows(call.get(place) or "t"),
    "language": lambda call, place, text: _struct(call.get(2)).get("target_language_code", "'en'"),
    "complete": _complete,
    "labels": _labels,
    "kinds": _kinds,
    "generated": _generated,
    "searched": _searched,
    "structs": _structs,
}
"""What a brace of a form says: of the call, and the text of the argument that it names."""
