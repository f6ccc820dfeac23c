"""JSON Schemas of answers: closed, as providers get them, and as llguidance follows them here.

The library refuses what it cannot express, and answers under what it takes are valid but for a few
details, which are written here in another way or refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast
from urllib.parse import unquote

from relquery.errors import ConfigError

_SINGLE = ("items", "additionalProperties", "contains", "not", "if", "then", "else")
_LISTS = ("anyOf", "allOf", "oneOf", "prefixItems")
_NAMED = ("properties", "patternProperties", "dependentSchemas", "$defs", "definitions")
"""Keywords with a schema inside, with a list of them, and with some by name."""

Schema = Mapping[str, Any]


def rebuilt(schema: Schema, change: Callable[[Any, str], Any]) -> dict[str, Any]:
    """A schema with those inside changed, its definitions too. change: gets one, and its place:
    the keyword, and its number or name there."""
    copy = dict(schema)
    for name, value in schema.items():
        if name in _SINGLE:
            copy[name] = change(value, name)
        elif name in _LISTS and isinstance(value, list):
            copy[name] = [change(each, f"{name}/{index}") for index, each in enumerate(value)]
        elif name in _NAMED and isinstance(value, dict):
            copy[name] = {key: change(each, f"{name}/{key}") for key, each in value.items()}
    return copy


def _inside(schema: Any) -> Iterator[Any]:
    """The schemas inside a schema, one level deeper."""
    inner: list[Any] = []
    if isinstance(schema, dict):
        rebuilt(schema, lambda each, place: inner.append(each))
    yield from inner


def closed(schema: str) -> dict[str, Any]:
    """The schema, in which an object that names its `properties` has all of them and no others.

    Providers ask for this in what they call strict schemas. Parts of `allOf` stay open, because
    each of them would forbid the keys of the others. Raises ConfigError; see _close_object.
    """
    return cast("dict[str, Any]", _close(json.loads(schema), ""))


def _close(schema: Any, where: str) -> Any:
    # true and false are schemas too
    if not isinstance(schema, dict) or where.startswith("allOf/"):
        return schema
    return rebuilt(_close_object(schema, "The schema"), _close)


def _close_object(schema: Schema, where: str, all_keys: bool = True) -> dict[str, Any]:
    """A schema that names `properties`, closed: those that are `required` too are among them.

    all_keys: whether values have all of them, or those that are `required` at least.

    Raises ConfigError for a required name that no key may have.
    """
    closed = dict(schema)
    if not isinstance(closed.get("properties"), dict):
        return closed
    properties, others = dict(closed["properties"]), closed.get("additionalProperties", True)
    given = _names(closed)
    for name in given:
        if name not in properties:
            if others is False or (others is not True and "patternProperties" in closed):
                raise ConfigError(
                    f"{where} requires the key {name!r}, which is not among its properties and "
                    "which additionalProperties forbids. Add it to the properties."
                )
            properties[name] = others
    required = [name for name in properties if all_keys or name in given]
    closing = {"required": required, "additionalProperties": False}
    return closed | {"properties": properties} | closing


def _names(schema: Schema) -> list[str]:
    """The keys that a schema requires."""
    given = schema.get("required")
    return [name for name in given if isinstance(name, str)] if isinstance(given, list) else []


# What follows is for llguidance.

_YEAR = "([0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)"
_LEAP_YEAR = "([0-9]{2}(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)"
_DATE = (
    f"({_YEAR}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)"
    f"|02-(0[1-9]|1[0-9]|2[0-8]))|{_LEAP_YEAR}-02-29)"
)
_TIME = (
    r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
)
_FORMATS = {"date": f"^{_DATE}$", "time": f"^{_TIME}$", "date-time": f"^{_DATE}T{_TIME}$"}
"""Patterns of dates that exist, in years 0001 to 9999, without leap seconds."""
_NUMBERS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "const", "enum")
_OF_OTHER_DRAFTS = {"additionalItems", "items"}
_LARGEST = 2**53
"""The largest number: up to it, floating-point numbers represent all whole ones."""
_MOST_LEVELS = 500  # the library reads them in nested calls


def followed(schema: str, all_keys: bool = True) -> str:
    """The text of a schema that allows what answers are: valid values under the one given.

    Objects that name `properties` have all of them, or only those that are required. Raises
    ConfigError for what llguidance would not follow exactly and does not refuse.
    """
    whole = json.loads(schema)
    if isinstance(whole, dict):
        whole = {name: value for name, value in whole.items() if name != "$schema"}
    reader = _Reader(whole, all_keys)
    text = reader.written(whole, "The schema")
    reader.check_references(text)
    return json.dumps(text)


def arguments_followed(schema: str) -> str:
    """The same for the arguments of a function, where keys that are not required may be left out.
    Raises ConfigError also for arguments that are no object."""
    read = json.loads(schema)
    kind = read.get("type") if isinstance(read, dict) else None
    if kind is None and isinstance(read, dict):
        read["type"] = "object"
    elif kind != "object":
        raise ConfigError(
            f"The parameters of a function have the type {json.dumps(kind)}; they must be an "
            'object: {"type": "object", "properties": {...}}.'
        )
    if not read.keys() & {"properties", "$ref", "anyOf", "oneOf", "allOf", "additionalProperties"}:
        read["properties"] = {}
    return followed(json.dumps(read), all_keys=False)


class _Reader:
    """A reader of schemas that writes each anew."""

    def __init__(self, whole: Any, all_keys: bool) -> None:
        self._whole, self._all_keys = whole, all_keys

    def written(self, schema: Any, where: str, is_open: bool = False) -> Any:
        """A part of the schema. is_open: its objects may have keys that it does not name, as a part
        of `allOf` has."""
        if not isinstance(schema, dict):
            return schema
        for name in _OF_OTHER_DRAFTS & schema.keys():
            if name != "items" or isinstance(schema[name], list):
                raise ConfigError(
                    f"{where} has {name} as earlier drafts have it, which is not supported. Use "
                    "prefixItems for the first items, and items for the others."
                )
        closed = self._with_one_of(schema, where, is_open)
        if not is_open:
            closed = _close_object(closed, where, self._all_keys)
        _check_numbers([closed[name] for name in _NUMBERS if name in closed], where)
        closed = _with_patterns(_with_keys(closed, where), where)
        return rebuilt(
            closed,
            lambda inner, place: self.written(
                inner, f"{where}/{place}", is_open or place.startswith("allOf/")
            ),
        )

    def _with_one_of(self, schema: Schema, where: str, is_open: bool) -> dict[str, Any]:
        """A schema without `oneOf`, or with alternatives of which a value can be under one only.

        The library sees that of what is written out, and for objects by the keys that they have.
        """
        if not isinstance(schema.get("oneOf"), list):
            return dict(schema)
        options = [self._target(each) for each in schema["oneOf"]]
        if self._all_keys and not is_open:  # answers have all keys that are named
            options = [
                each | {"required": [*_names(each), *each["properties"]]}
                if isinstance(each, dict) and isinstance(each.get("properties"), dict)
                else each
                for each in options
            ]
        if "oneOf" in _refusal(json.dumps({"oneOf": options})):
            raise ConfigError(
                f"{where} has oneOf, and a value could be valid under two of its schemas. Give "
                "each a key with a const of its own, or use anyOf."
            )
        kept = {name: value for name, value in schema.items() if name != "oneOf"}
        either = {"anyOf": schema["oneOf"]}
        return _joined(kept, either) if "anyOf" in kept else kept | either

    def _target(self, schema: Any) -> Any:
        """A schema, or what it refers to if it does nothing else."""
        for _ in range(8):
            if not (isinstance(schema, dict) and isinstance(schema.get("$ref"), str)):
                break
            schema = _at(self._whole, schema["$ref"])
        return schema

    def check_references(self, whole: Any) -> None:
        """Raises ConfigError for a schema under which no answer ends, and for one so deep that the
        library cannot read it."""
        parts = list(_parts(whole))
        pointers = {part["$ref"] for part in parts if isinstance(part.get("$ref"), str)}
        targets = {pointer: _at(whole, pointer) for pointer in pointers}
        levels = sum(_levels(each) for each in (whole, *targets.values()))
        if levels > _MOST_LEVELS:
            raise ConfigError(
                f"The schema and its definitions are nested {levels:,} levels deep together; the "
                f"most is {_MOST_LEVELS}. Ask for less."
            )
        ending: set[str] = set()
        while more := {pointer for pointer in pointers - ending if _ends(targets[pointer], ending)}:
            ending |= more
        if not _ends(whole, ending):
            raise ConfigError(
                "The schema allows no answer: it refers to itself without an end, as an answer has "
                "all `properties`, or something in it is false. Allow null in place of what refers "
                'back: {"anyOf": [{"$ref": "#"}, {"type": "null"}]}.'
            )


def check(schema: str) -> None:
    """Raises ConfigError for what llguidance refuses; for engines that would tell at the first
    request."""
    refused = _refusal(followed(schema))
    if refused:
        raise ConfigError(f"The schema cannot be followed: {refused}")


def _refusal(schema: str) -> str:
    """Why the library refuses a schema, or nothing."""
    import llguidance

    options: Any = {"coerce_one_of": False, "lenient": False}
    try:
        grammar = llguidance.LLMatcher.grammar_from_json_schema(schema, overrides=options)
    except ValueError:  # halves of characters: it will say so
        return ""
    return llguidance.LLMatcher.validate_grammar(grammar)


def _with_keys(schema: dict[str, Any], where: str) -> dict[str, Any]:
    """The schema of an object without what its required keys say already."""
    copy = dict(schema)
    if copy.get("uniqueItems") is False:
        del copy["uniqueItems"]
    least, present = copy.get("minProperties", 0), len(set(_names(copy)))
    if isinstance(least, int) and least <= present:
        copy.pop("minProperties", None)
    elif isinstance(least, int) and least > 1:
        raise ConfigError(
            f"{where} has minProperties {least}, and {present} keys are required: an answer could "
            "have the same key twice. Name the keys in `required`."
        )
    return copy


def _with_patterns(schema: dict[str, Any], where: str) -> dict[str, Any]:
    """The schema with patterns as ECMA-262 understands them, and dates that exist."""
    copy = dict(schema)
    if isinstance(copy.get("pattern"), str):
        copy["pattern"] = _pattern(copy["pattern"], where)
    if isinstance(keys := copy.get("patternProperties"), dict):
        copy["patternProperties"] = {_pattern(key, where): keys[key] for key in keys}
    named = copy.get("format")
    dates = _FORMATS.get(named) if isinstance(named, str) else None
    if dates is not None:
        del copy["format"]
        return _joined(copy, {"pattern": dates}) if "pattern" in copy else copy | {"pattern": dates}
    return copy


def _joined(schema: Schema, other: Schema) -> dict[str, Any]:
    """A schema that says what another one says, too."""
    parts = schema.get("allOf", [])
    return {**schema, "allOf": [*parts, other]} if isinstance(parts, list) else dict(schema)


_SPACES = r" \t\n\r\f\v\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
_MEANT = {"d": "0-9", "w": "A-Za-z0-9_", "s": r" \t\n\r\f\v"}
"""What short forms stand for. Of spaces, none that only some programs know."""
_NOT_MEANT = {"D": "0-9", "W": "A-Za-z0-9_", "S": rf"{_SPACES}\x85"}
_PIECE = re.compile(r"\\.|\[\^?|\]|\(\?|&&|--|~~|.", re.DOTALL)


def _pattern(pattern: str, where: str) -> str:
    """The pattern with its short forms written out. Raises ConfigError for what Rust's regular
    expressions, which the library has, understand in another way than ECMA-262."""
    parts, in_class = list[str](), False
    for piece in _PIECE.finditer(pattern):
        text, start = piece[0], piece.start()
        is_strange = (
            (text[0] == "[" and in_class)
            or (text in ("&&", "--", "~~") and in_class)
            or (text == "(?" and not in_class and pattern[start + 2 : start + 3] != ":")
            or (text == "^" and not in_class and start > 0)
            or (text == "$" and not in_class and start + 1 < len(pattern))
            or (text[0] == "\\" and text[1:] in ("A", "z", "p", "P", "Q", "a", "b", "B", "x{"))
            or (text[0] == "\\" and in_class and text[1:] in _NOT_MEANT)
        )
        if is_strange:
            raise ConfigError(
                f"{where} has the pattern {pattern[:80]!r}, in which {text!r} is not supported. "
                "Use text, classes such as [a-z], groups, alternatives and repetitions, with ^ "
                "and $ at the ends."
            )
        if text[0] == "\\" and text[1:] in _MEANT:
            meant = _MEANT[text[1:]]
            parts.append(meant if in_class else f"[{meant}]")
        elif text[0] == "\\" and text[1:] in _NOT_MEANT:
            parts.append(f"[^{_NOT_MEANT[text[1:]]}]")
        elif text == "." and not in_class:
            parts.append(r"[^\n\r\u2028\u2029]")
        else:
            parts.append(text)
        in_class = text[0] == "[" or (in_class and text != "]")
    return "".join(parts)


def _check_numbers(value: Any, where: str) -> None:
    """Raises ConfigError for a number that the library would round."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            _check_numbers(each, where)
    elif isinstance(value, int) and abs(value) > _LARGEST:
        raise ConfigError(
            f"{where} has the number {value}; a number in a schema must be between -2**53 and "
            "2**53. Give a nearer one, or a string with a pattern."
        )


def _at(whole: Any, pointer: str) -> Any:
    """What a reference leads to; None if there is nothing."""
    value = whole
    for part in pointer.split("/")[1:]:
        name = unquote(part).replace("~1", "/").replace("~0", "~")
        if isinstance(value, list) and name in map(str, range(len(value))):
            value = value[int(name)]
        else:
            value = value.get(name) if isinstance(value, dict) else None
    return value


def _parts(schema: Any) -> Iterator[dict[str, Any]]:
    """A schema and all schemas inside it."""
    if isinstance(schema, dict):
        yield schema
    for each in _inside(schema):
        yield from _parts(each)


def _levels(schema: Any) -> int:
    """How deep schemas are inside one another, the outermost one included."""
    return 1 + max(map(_levels, _inside(schema)), default=0)


def _ends(schema: Any, ending: set[str]) -> bool:
    """Whether a value under a schema can end. ending: references under which one can."""
    if not isinstance(schema, dict):
        return schema is not False
    if isinstance(schema.get("$ref"), str) and schema["$ref"] not in ending:
        return False
    for name, enough in (("allOf", all), ("anyOf", any)):
        options = schema.get(name)
        if isinstance(options, list) and not enough(_ends(each, ending) for each in options):
            return False
    kinds = schema.get("type")
    if kinds == "object" and isinstance(schema.get("properties"), dict):
        properties = schema["properties"]
        return all(_ends(properties.get(name, True), ending) for name in _names(schema))
    if kinds == "array" and isinstance(schema.get("minItems"), int):
        first = schema.get("prefixItems")
        first = first[: schema["minItems"]] if isinstance(first, list) else []
        rest = [schema.get("items", True)] if schema["minItems"] > len(first) else []
        return all(_ends(each, ending) for each in (*first, *rest))
    return True
