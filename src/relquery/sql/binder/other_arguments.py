"""Arguments of functions of other systems, as texts of SQL, and what stands for them here.

'Is it late? ' || message      =>  'Is it late?', message
'["food", "room"]'             =>  ['food', 'room']
STRUCT<name: STRING>           =>  'name VARCHAR'
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from relquery.sql.names import quoted_text
from relquery.sql.parser.tokens import Token, between_commas, closing, on_top, tokenize

_TYPES = {"STRING": "VARCHAR", "INT64": "BIGINT", "FLOAT64": "DOUBLE", "BOOL": "BOOLEAN",
          "BYTES": "BLOB", "INT": "INTEGER", "ARRAY<STRING>": "VARCHAR[]"}  # fmt: skip
_KINDS = {
    "person": "NAME", "first_name": "NAME", "last_name": "NAME", "phone": "PHONE_NUMBER",
    "location": "ADDRESS", "social security number": "NATIONAL_ID", "ssn": "NATIONAL_ID",
    "dob": "DATE_OF_BIRTH", "credit card": "PAYMENT_CARD_DATA", "street_address": "ADDRESS",
    "credit card number": "PAYMENT_CARD_DATA", "iban": "BANK_ACCOUNT",
}  # fmt: skip
_SETTINGS = ("max_tokens", "temperature", "top_p", "top_k", "seed")


@dataclass(frozen=True, slots=True)
class OtherCall:
    """A call as another system writes it."""

    texts: Sequence[str]
    """Its arguments by place."""
    named: dict[str, str]
    """Those with a name, by this in lower case."""

    def get(self, place: int, *names: str) -> str | None:
        """An argument by one of its names, or by its place."""
        value = next((self.named[name] for name in names if name in self.named), None)
        return value or (self.texts[place] if place < len(self.texts) else None)


def literal(text: str) -> str:
    """Lists and structs in our form: ARRAY('a', 'b'), OBJECT_CONSTRUCT('a', 1)."""
    tokens = tokenize(text)
    name = tokens[0].word if len(tokens) > 2 and tokens[1].text in "([" else ""
    if name not in ("ARRAY", "ARRAY_CONSTRUCT", "OBJECT_CONSTRUCT", "NAMED_STRUCT"):
        return text
    items = arguments_of(text, tokens[2 : closing(tokens, 1)])
    if name.startswith("ARRAY"):
        return f"[{', '.join(map(literal, items))}]"
    pairs = zip(items[::2], map(literal, items[1::2]), strict=False)
    return f"{{{', '.join(f'{key}: {value}' for key, value in pairs)}}}"


def arguments_of(sql: str, tokens: Sequence[Token]) -> list[str]:
    """The arguments between commas, as they are written."""
    return [sql[part[0].start : part[-1].end] for part in between_commas(tokens)]


def inside(text: str) -> list[str]:
    """What is in the brackets around a text."""
    return arguments_of(text, tokenize(text)[1:-1])


def as_text(argument: str) -> str:
    """An argument; in double quotes it is a text where the system takes these for texts."""
    is_one = argument.startswith('"') and argument.endswith('"') and '"' not in argument[1:-1]
    return quoted_text(argument[1:-1]) if is_one else argument


def _is_text(argument: str) -> bool:
    return argument.startswith("'") and len(tokenize(argument)) == 1


def _value(argument: str) -> str:
    return argument[1:-1].replace("''", "'")


def name_of(path: str) -> str:
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
        return arguments_of(argument, tokens[opening + 1 : -1])
    signs = [place for place in on_top(tokens) if tokens[place].text == "||"]
    begins, ends = [0, *(place + 1 for place in signs)], [*signs, len(tokens)]
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
    parts = [as_text(text) for part in _joined(argument) for text in _joined(part)]
    fields = [part for part in parts if not _is_text(part)]
    if not fields:
        return quoted_text("".join(map(_value, parts)))
    if len(parts) == 1:
        return argument
    if _is_text(parts[0]) and not any(map(_is_text, parts[1:])):
        return ", ".join([quoted_text(_value(parts[0]).strip()), *fields])
    numbers = iter(range(len(fields)))
    text = "".join(_value(part) if _is_text(part) else f"{{{next(numbers)}}}" for part in parts)
    return f"PROMPT({', '.join([quoted_text(text), *fields])})"


def _fields(argument: str) -> str:
    """Several columns as fields: ('Title: ', title, body) => title, body."""
    fields = [part for part in _joined(argument) if not _is_text(part)]
    return ", ".join(fields or [_prompt(argument)])


def _output(written: str | None) -> str:
    """An option for the type of answers."""
    if written is None or _value(written).upper() == "STRING":
        return ""
    if not _is_text(written):
        return f", output := {written}"
    names = r"[A-Z]+\d*(?:<[A-Z]+>)?"
    known = re.sub(names, lambda found: _TYPES.get(found[0], found[0]), _value(written))
    if known.startswith("{"):
        known = "" if '"json_object"' in known else known
    elif "<" in known:  # Spark's STRUCT<a: STRING>, of which the outermost is the answer's own
        known = re.sub(r"(\w+): ?", r"\1 ", known.replace("<", "(").replace(">", ")"))
        known = re.sub(r"^STRUCT\((?:\w+ STRUCT\((.*)\)|(.*))\)$", r"\1\2", known)
    if not known:
        return ""
    return f", output := {quoted_text(known)}"


def _complete(call: OtherCall, place: int, messages: str) -> str:
    """A prompt or the last message of a chat, with the options of a completion."""
    options = call.named.get("modelparameters") or call.named.get("options") or ""
    request = dict(pair(member) for member in inside(messages)) if messages.startswith("{") else {}
    if "prompt" in request:  # a struct with the prompt and settings
        options, messages = options or messages, request["prompt"]
    form = call.named.get("responseformat") or call.named.get("response_format")
    kind = _output(call.get(9, "returntype", "output_schema"))
    if messages.startswith("["):
        said = re.findall(r"'content' ?: ?('(?:[^']|'')*'|\w+)", messages)
        messages = said[-1] if said else messages
        options = options or call.get(place + 1) or ""
    known = map(pair, inside(options) if options.startswith("{") else ())
    settings = "".join(f", {key} := {value}" for key, value in known if key in _SETTINGS)
    return _prompt(messages) + (kind or _output(form)) + settings


def pair(item: str) -> tuple[str, str]:
    """The key and the value of an item of a struct."""
    key, _, value = item.partition(":")
    return key.strip(" '\""), value.strip()


def _distance(call: OtherCall, place: int, text: str) -> str:
    """ML.DISTANCE(a, b, 'COSINE')."""
    measure = _value(call.get(2) or "'EUCLIDEAN'").upper()
    name = "list_cosine_distance" if measure == "COSINE" else "list_distance"
    return f"{name}({', '.join(call.texts[:2])})"


def _labels(call: OtherCall, place: int, labels: str) -> str:
    """Labels, with descriptions if they have some: [('food', 'meals')]."""
    tuples = [_joined(member) for member in inside(labels)]
    if labels.startswith("[") and tuples and all(len(pair) == 2 for pair in tuples):
        described = (f"{{'label': {label}, 'description': {two}}}" for label, two in tuples)
        labels = f"[{', '.join(described)}]"
    is_multi = "multi" in call.named.get("output_mode", "").lower()
    return f"{labels}, multi := true" if is_multi else labels


def _kinds(call: OtherCall, place: int, labels: str) -> str:
    """Labels of personal data as our kinds."""
    names = [_value(member) for member in inside(labels)]
    kinds = [_KINDS.get(name.lower(), name.upper().replace(" ", "_")) for name in names]
    return f"[{', '.join(map(quoted_text, kinds))}]"


def _rows(argument: str) -> str:
    """What follows FROM: TABLE t => t; a query in parentheses as it is."""
    if not argument.upper().startswith("TABLE"):
        return argument
    path = argument[5:].strip().removeprefix("(").removesuffix(")")
    return name_of(path.strip('"'))


def _struct(argument: str | None) -> dict[str, str]:
    """The values of STRUCT(1 AS a, 'x' AS b), by name."""
    tokens, text = tokenize(argument or ""), argument or ""
    if not tokens or tokens[0].word != "STRUCT":
        return {}
    parts = [part for part in between_commas(tokens[2:-1]) if len(part) > 2]
    named = [part for part in parts if part[-2].word == "AS"]
    return {part[-1].name.lower(): text[part[0].start : part[-3].end] for part in named}


def _generated(call: OtherCall, place: int, text: str) -> str:
    """The item of AI.GENERATE_TABLE and the like, whose settings are a STRUCT."""
    settings = _struct(call.get(2))
    kind = _output(settings.get("output_schema"))
    names = {"max_output_tokens": "max_tokens", "temperature": "temperature"}
    given = (
        f", {option} := {settings[name]}" for name, option in names.items() if name in settings
    )
    value = f"AI_COMPLETE(prompt{kind}{''.join(given)})"
    return f"unnest({value})" if kind else f"{value} AS result"


def _searched(call: OtherCall, place: int, table: str) -> str:
    """VECTOR_SEARCH(TABLE t, 'column', 'text', top_k => 3) and Databricks' form."""
    index, text = call.named.get("index"), call.named.get("query_text") or call.named.get("query")
    count = call.named.get("num_results") or call.named.get("top_k") or "5"
    if index is not None:
        return f"AI_SEARCH({quoted_text(name_of(_value(index)))}, {text}, {count})"
    column, text = call.get(1) or "column", text or call.get(2) or "column"
    return f"AI_SEARCH({quoted_text(_rows(call.get(0) or 't'))}, {text}, {count}, {column})"


def _structs(call: OtherCall, place: int, text: str) -> str:
    """({'model_name': 'x'}, {'prompt': 'text'}, {'review': review}) => 'text', review."""
    settings = list[str]()
    for argument in call.texts:
        pairs = inside(argument) if argument.startswith("{") else []
        values = [pair.partition(":")[2].strip() for pair in pairs] or [argument]
        settings += [] if "model_name" in argument else values
    return ", ".join(settings)


def settings_of_map(items: Sequence[str]) -> str:
    """map('instructions', 'x', 'multilabel', 'true') as options."""
    given = {_value(key): value for key, value in zip(items[::2], items[1::2], strict=False)}
    names = {"instructions": "instruction", "multilabel": "multi"}
    known = ((names[key], value) for key, value in given.items() if key in names)
    return ", ".join(f"{key} := {_value(text) if key == 'multi' else text}" for key, text in known)


def type_in(written: str) -> str:
    """The type of answers in our form; what is none of another system's as it is.

    TYPE OBJECT(a VARCHAR) => 'a VARCHAR', '["a"]' => ['a'], '{"a": {"type": "string"}}' => a schema
    """
    tokens = tokenize(written)
    if len(tokens) > 2 and tokens[0].word == "TYPE" and tokens[1].word == "OBJECT":
        return quoted_text(written[tokens[2].end : tokens[-1].start].strip())
    with suppress(ValueError):
        match json.loads(_value(written)) if _is_text(written) else None:
            case list() as names:
                return f"[{', '.join(quoted_text(str(name)) for name in names)}]"
            case dict() as schema if "type" not in schema and "properties" not in schema:
                whole = {"type": "object", "properties": schema}
                return quoted_text(json.dumps(whole, ensure_ascii=False))
    return written


def labels_in(written: str) -> str:
    """Labels in JSON as a list: '["a", "b"]', or with descriptions '{"a": "about a"}'."""
    try:
        labels = json.loads(_value(written))
    except ValueError:
        return written
    if isinstance(labels, dict):
        pairs = ((quoted_text(key), quoted_text(str(of))) for key, of in labels.items())
        items = [f"{{'label': {label}, 'description': {of}}}" for label, of in pairs]
    else:
        items = [quoted_text(str(label)) for label in labels]
    return f"[{', '.join(items)}]"


PARTS: dict[str, Callable[[OtherCall, int, str], str]] = {
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
    "distance": _distance,
    "labels": _labels,
    "kinds": _kinds,
    "generated": _generated,
    "searched": _searched,
    "structs": _structs,
}
"""What a brace of a form says: of the call, and the text of the argument that it names."""
