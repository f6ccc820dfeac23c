"""Replacements for functions of Snowflake, BigQuery and Databricks, in the query's own
arguments.

    ai_query('endpoint', 'Summarize: ' || review)    AI_COMPLETE('Summarize:', review)
    AI.IF(('Is it late? ', message))                 AI_FILTER('Is it late?', message)
    ML.GENERATE_TEXT(MODEL m, TABLE t)               (SELECT *, AI_COMPLETE(prompt) AS ... FROM t)

Statements are read by their tokens, as DuckDB's parser does not take the forms of other systems.
Arguments are texts of SQL, as the user wrote them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress

from relquery.errors import RelqueryError
from relquery.sql import names as ours
from relquery.sql.binder.other_arguments import (
    PARTS,
    OtherCall,
    arguments_of,
    as_text,
    inside,
    labels_in,
    literal,
    name_of,
    pair,
    settings_of_map,
    type_in,
)
from relquery.sql.host.database import Database
from relquery.sql.parser.tokens import Token, closing, tokenize

FORMS = {
    # Snowflake: names in its schema
    "cortex.complete": "AI_COMPLETE({complete 1 prompt})",
    "cortex.try_complete": "AI_COMPLETE({complete 1 prompt})",
    "cortex.classify_text": "AI_CLASSIFY({all})",
    "cortex.embed_text_768": "AI_EMBED({last})",
    "cortex.embed_text_1024": "AI_EMBED({last})",
    "cortex.extract_answer": "AI_COMPLETE({text 1}, {text 0})",
    "cortex.sentiment": "2 * AI_SCORE('Is the sentiment of the text positive?', {fields 0}) - 1",
    "cortex.entity_sentiment": "AI_SENTIMENT({all})",
    "cortex.summarize": "AI_SUMMARIZE({fields 0})",
    "cortex.translate": "AI_TRANSLATE({all})",
    "cortex.count_tokens": "AI_COUNT_TOKENS({last})",
    # and elsewhere
    "vector_cosine_similarity": "list_cosine_similarity({all})",
    "vector_inner_product": "list_inner_product({all})",
    "vector_l2_distance": "list_distance({all})",
    "ai_embed": "AI_EMBED({last})",
    "ai_similarity": "AI_SIMILARITY({pair})",
    # Databricks
    "ai_generate_text": "AI_COMPLETE({asked 0 prompt})",
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
    "ml.distance": "{distance}",
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
    "obj.get_access_url": _PAGES, "to_file": _PAGES,
    "ai_prep_search": "Write passages('table', question), which indexes the table itself.",
    "finetune": "Train the model elsewhere, and open it: rq.connect('BASE+ADAPTER').",
    "search_preview": "Write AI_SEARCH('table', question, k).",
    "split_text_recursive_character": "Split the text with DuckDB's regexp_split_to_array.",
}  # fmt: skip
"""Functions with nothing like them here, and what to do instead."""
_QUOTED = re.compile(r"`([^`]*)`")
_BRACE = re.compile(r"\{(\w+)(?: (\d))?((?: \w+)*)\}")


def advice(sql: str, database: Database) -> str | None:
    """What to write in place of a text with functions of other systems; None if it has none."""
    plain = _QUOTED.sub(lambda found: name_of(found[1]), sql.encode(errors="replace").decode())
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
    first, parts, end, place, tokens = "", list[str](), 0, 0, tokenize(sql)
    while place < len(tokens):
        path, opening = _path(tokens, place)
        if opening is None or path in defined:
            place += 1
            continue
        if f"cortex.{path}" in FORMS and path not in FORMS:  # of a schema that is in use
            path = f"cortex.{path}"
        last = closing(tokens, opening)
        if (bare := path.removeprefix("cortex.")) in NOT_HERE:
            return bare.upper(), None
        texts, changed = list[str](), path.startswith("cortex.")
        for argument in arguments_of(sql, tokens[opening + 1 : last]):
            name, inner = _rewritten(argument, defined)
            if inner is None:
                return name, None
            texts.append(literal(inner if name else argument))
            changed |= texts[-1] != argument
        path = path if path in FORMS else bare
        plain = f"{path.upper()}({', '.join(texts)})"
        text = _written(path, texts) if path in FORMS else _as_ours(path, texts)
        end_of_path, suffix = _path_into(tokens, last, path)
        if changed or text != plain or end_of_path > last:
            first = first or path.upper()
            last, text = end_of_path, text + suffix
            parts += [sql[end : tokens[place].start], text]
            end = tokens[last].end
        place = last + 1
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
            is_known |= f"cortex.{path}" in FORMS and path not in _OF_DUCKDB
            return path, at + 1 if is_known or path.startswith("cortex.") else None
        if tokens[at + 1].text != ".":
            break
        at += 2
    return "", None


_OF_DUCKDB = ("translate",)
_INTO = {"ai_classify": "labels label category", "cortex.classify_text": "label"}
_AROUND = ("result", "full_response", "status")
"""Names in the objects of Snowflake's and BigQuery's functions, which here are the value itself."""


def _path_into(tokens: Sequence[Token], last: int, function: str) -> tuple[int, str]:
    """(the last token of a path into the object that a call gives elsewhere, what it is here).

    AI.GENERATE(...).result                        =>  the value has no object around it
    AI_CLASSIFY(...):labels[0]                     =>  likewise
    AI_SENTIMENT(...):categories[0]:sentiment      =>  AI_SENTIMENT(...).overall
    AI_EXTRACT(...):response:name                  =>  AI_EXTRACT(...).name
    """
    after = [token.text for token in tokens[last + 1 : last + 9]]
    if function.startswith(("ai.", "ml.")) and after[:1] == ["."]:
        return (last + 2, "") if after[1] in _AROUND else (last, "")
    names, place = list[str](), 0
    while place + 1 < len(after) and after[place] in (":", "[", *((".",) if names else ())):
        is_name = after[place] != "["
        names.append(after[place + 1].strip("'"))
        place += 2 if is_name else 3
    if not names or not (after[0] == ":" or names[0] in _INTO.get(function, "").split()):
        return last, ""
    if function == "ai_sentiment":
        return last + place, ".overall"
    if function in _INTO:
        return last + place, ""
    return last + place, "".join(f".{name}" for name in names if name != "response")


def _written(path: str, arguments: Sequence[str]) -> str:
    """A call in our form."""
    texts, named = list[str](), dict[str, str]()
    for argument in arguments:
        tokens = tokenize(argument)
        if len(tokens) > 2 and tokens[1].text in ("=>", ":="):
            named[tokens[0].name.lower()] = literal(argument[tokens[1].end :].strip())
        else:
            takes_quotes = path.startswith(("cortex.", "ai_")) and path not in _OF_DATABRICKS
            texts.append(argument if takes_quotes else as_text(argument))
    call = OtherCall(texts, named)

    def part(found: re.Match[str]) -> str:
        place, names = int(found[2] or 0), found[3].split()
        return PARTS[found[1]](call, place, call.get(place, *names) or (*names, "column")[0])

    return _BRACE.sub(part, FORMS[path])


_OF_DATABRICKS = ("ai_query", "ai_gen", "ai_mask", "ai_analyze_sentiment", "ai_fix_grammar")
_LEFT_OUT = ("show_details", "guardrails", "return_error_details", "examples", "failonerror",
             "connection_id", "endpoint", "config_object", "request_type")  # fmt: skip
"""Arguments of other systems for which nothing is needed here."""


def _as_ours(path: str, arguments: Sequence[str]) -> str:
    """A call of a function that is one here, with arguments that other systems have."""
    texts = list[str]()
    if path == "ai_redact" and any("detect" in text for text in arguments[1:]):
        text = arguments[0].removeprefix("input =>").strip()
        return f"AI_EXTRACT({text}, 'names VARCHAR[], addresses VARCHAR[], emails VARCHAR[]')"
    for argument in arguments:
        if ours := _our_argument(path, len(texts), argument):
            texts.append(ours)
    return f"{path.upper()}({', '.join(texts)})"


def _our_argument(path: str, place: int, argument: str) -> str:
    """An argument in our form; "" for one that nothing is needed for."""
    tokens = tokenize(argument)
    is_named = len(tokens) > 2 and tokens[1].text in ("=>", ":=")
    value = argument[tokens[1].end :].strip() if is_named else argument
    if is_named and tokens[0].name.lower() in _LEFT_OUT and path != "llm":
        return ""
    if path in ("ai_extract", "ai_complete") and (kind := type_in(value)) != value:
        return f"output := {kind}" if is_named else kind
    if path == "ai_classify" and place == 1 and value.startswith(("'[", "'{")):
        return labels_in(value)
    if len(tokens) > 2 and tokens[0].word == "MAP" and tokens[1].text == "(":
        return settings_of_map(arguments_of(argument, tokens[2:-1]))
    if path == "ai_classify" and argument.startswith("{"):
        items = inside(argument)
        kept = [item for item in items if pair(item)[0] not in _LEFT_OUT]
        return argument if kept == items else f"{{{', '.join(kept)}}}"
    return argument
