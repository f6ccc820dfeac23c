"""The statements of a text, and what they begin with: EXPLAIN, CREATE or DROP of a view or macro,
PREPARE, EXECUTE and DEALLOCATE.

CREATE OR REPLACE TEMP VIEW v(a, b) AS SELECT ...  =>  the name v, columns a and b, the query

PREPARE p AS SELECT LLM('...', a) FROM t WHERE id = $1;  EXECUTE p(7)
=> SELECT LLM('...', a) FROM t WHERE id = (7)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from relquery.errors import QueryError, UnsupportedQueryError
from relquery.sql.host.catalog import Definition, Key, Kind
from relquery.sql.host.database import Database
from relquery.sql.parser.tokens import (
    Cursor,
    Token,
    between_commas,
    blank,
    tokenize,
    unnumbered,
    without_field_names,
    words,
)


@dataclass(frozen=True, slots=True)
class Text:
    """One statement of a text.

    given: as DuckDB runs it. query: what follows its EXPLAIN, behind as many blanks as there are
        bytes before, so that errors have the right line and column.
    option: the option given to EXPLAIN, "" for none; None if there is no EXPLAIN.
    kind: what DuckDB calls it. parameters: names of its parameters, as DuckDB counts them.
    before: how many `?` the statements before have.
    number, of: its place among the statements, from 1, and how many there are.
    costs: whether EXPLAIN has the option COST, which DuckDB does not know; the others leave it out.
    """

    given: str
    query: str
    option: str | None
    kind: str
    parameters: frozenset[str]
    before: int = 0
    number: int = 1
    of: int = 1
    costs: bool = False

    @property
    def analyzes(self) -> bool:
        """Whether it starts with EXPLAIN ANALYZE, which runs it."""
        return "ANALYZE" in (self.option or "").upper()

    def number_of(self, parameter: str) -> str:
        """The number of a parameter among those of the whole text; a name as it is."""
        return str(int(parameter) + self.before) if parameter.isdigit() else parameter.lower()


def split(sql: str, database: Database) -> list[Text]:
    """The statements of a text. Raises SqlSyntaxError, and QueryError if there are none."""
    try:
        sql.encode()
    except UnicodeEncodeError as error:
        raise half_a_character("The SQL", error) from error
    tokens = tokenize(sql)
    plain = _without_cost(sql, tokens)
    accepted = without_field_names(plain, tokens)
    parsed = database.statements(accepted, sql)
    if not parsed:
        raise QueryError("The query is empty. Give a statement, e.g. SELECT * FROM t.")
    texts: list[Text] = []
    # Names of fields may have more bytes than characters, and so more blanks.
    marks, end = 0, 0
    for number, one in enumerate(parsed, 1):
        start = accepted.index(one.text, end)
        end = start + len(one.text)
        first, last = (_same_place(plain, accepted, at) for at in (start, end))
        given = plain[first:last]
        found = len(unnumbered(tokenize(given), given))
        option, query = explained(blank(plain[:first]) + given)
        texts.append(
            Text(
                given, query, option, one.kind, one.parameters, marks if found else 0, number,
                len(parsed), costs=given != sql[first:last],
            )
        )  # fmt: skip
        marks += found
    return texts


def half_a_character(what: str, error: UnicodeEncodeError) -> QueryError:
    """The error for a text that cannot be encoded."""
    return QueryError(
        f"{what} contains half a character at position {error.start} (a lone surrogate). "
        "Decode it as UTF-16 with surrogate pairs joined."
    )


def _same_place(plain: str, accepted: str, at: int) -> int:
    """The place in characters of one text that has as many bytes before it as in another."""
    if plain.isascii():
        return at
    return len(plain.encode()[: len(accepted[:at].encode())].decode(errors="ignore"))


def _without_cost(sql: str, tokens: Sequence[Token]) -> str:
    """A text with blanks in place of `(COST)` after the EXPLAIN that begins a statement."""
    for at in range(len(tokens) - 3):
        begins = at == 0 or tokens[at - 1].text == ";"
        if begins and words(tokens, at, 4) == ["EXPLAIN", "(", "COST", ")"]:
            start, end = tokens[at + 1].start, tokens[at + 3].end
            sql = sql[:start] + " " * (end - start) + sql[end:]
    return sql


def is_explain(sql: str) -> bool:
    """Whether a text starts with an EXPLAIN that does not run its statement."""
    option, _ = explained(sql)
    return option is not None and "ANALYZE" not in option.upper()


def explained(sql: str) -> tuple[str | None, str]:
    """The option of a statement's EXPLAIN (None without one), and the statement without it."""
    text = Cursor(sql, tokenize(sql))
    if not text.take("EXPLAIN"):
        return None, sql
    text.take("ANALYZE")
    if any(text.is_at("(", option) for option in ("ANALYZE", "FORMAT", "COST")):
        text.inside()
    first, last = text.tokens[0].end, text.tokens[text.at - 1].end
    return sql[first:last].strip(), blank(sql[:last]) + sql[last:]


_KINDS = {"VIEW": "VIEW", "MACRO": "MACRO", "FUNCTION": "MACRO", "TABLE": "TABLE"}


@dataclass(frozen=True, slots=True)
class Head:
    """The beginning of CREATE or DROP of a table, view or macro.

    is_create: whether it creates. kind: "TABLE", "VIEW", "MACRO" or "TABLE MACRO". is_there: IF
    NOT EXISTS, or IF EXISTS. path: the parts of the name. rest: the tokens after the name.
    """

    is_create: bool
    kind: str
    replaces: bool
    temporary: bool
    is_there: bool
    path: tuple[str, ...]
    rest: Sequence[Token]

    @property
    def name(self) -> str:
        """The name without database and schema."""
        return self.path[-1]

    @property
    def keys(self) -> tuple[Key, ...]:
        """The keys of all definitions that the name may mean here."""
        kinds: tuple[Kind, ...] = ("VIEW",)
        if self.kind == "TABLE MACRO":
            kinds = ("TABLE MACRO",)
        elif self.kind == "MACRO":
            kinds = ("MACRO",) if self.is_create else ("MACRO", "TABLE MACRO")
        return tuple((kind, self.name.lower()) for kind in kinds)


def read_head(sql: str) -> Head | None:
    """The beginning of a statement that creates or drops a table, view or macro; else None."""
    text = Cursor.of(sql)
    is_create = text.take("CREATE")
    if not is_create and not text.take("DROP"):
        return None
    replaces = text.take("OR", "REPLACE")
    temporary = text.take("TEMP") or text.take("TEMPORARY")
    kind = next((_KINDS[word] for word in _KINDS if text.take(word)), None)
    if kind == "MACRO" and not is_create and text.take("TABLE"):
        kind = "TABLE MACRO"
    is_there = text.take(*(("IF", "NOT", "EXISTS") if is_create else ("IF", "EXISTS")))
    path, _ = text.path()
    if kind is None or not path:
        return None
    rest = text.tokens[text.at :]
    if kind == "MACRO" and is_create and text.is_at("("):
        text.inside()
        kind = "TABLE MACRO" if text.is_at("AS", "TABLE") else kind
    return Head(is_create, kind, replaces, temporary, is_there, path, rest)


def read_definition(sql: str, head: Head) -> tuple[Definition, int]:
    """The view or macro that a statement creates, and where its body starts.

    Raises UnsupportedQueryError for a macro with several forms or with types.
    """
    text = Cursor(sql, head.rest)
    names: list[str] = []
    defaults: dict[str, str] = {}
    for part in between_commas(text.inside()) if text.is_at("(") else []:
        names.append(part[0].name)
        if len(part) > 2 and part[1].text == ":=":
            defaults[names[-1].lower()] = text.text(part[2:])
        elif len(part) > 1:
            raise UnsupportedQueryError(
                f"The parameter {names[-1]} of the macro {head.name} has a type, which a macro "
                "with LLM calls does not support. Leave the type out, and cast the parameter in "
                "the body."
            )
    body = head.rest[text.at + (2 if head.kind == "TABLE MACRO" else 1) :]
    if head.kind == "MACRO" and len(between_commas(body)) > 1:
        raise UnsupportedQueryError(
            f"The macro {head.name} has several forms, which a macro with LLM calls does not "
            "support. Create a macro of its own for each."
        )
    kind, _ = head.keys[0]
    return Definition(kind, head.name, tuple(names), defaults, text.text(body)), body[0].start


@dataclass(frozen=True, slots=True)
class Prepared:
    """A PREPARE, EXECUTE or DEALLOCATE statement.

    body: what is prepared; "" for the others. values: texts of the arguments, by name or by
    position counted from "1".
    """

    verb: str
    name: str
    body: str
    values: dict[str, str]


def read_prepared(sql: str) -> Prepared | None:
    """Read PREPARE, EXECUTE or DEALLOCATE; None for all else."""
    text = Cursor.of(sql)
    verb = "".join(words(text.tokens, 0, 1))
    if verb not in ("PREPARE", "EXECUTE", "DEALLOCATE") or len(text.tokens) < 2:
        return None
    name = text.tokens[-1 if verb == "DEALLOCATE" else 1].name.lower()
    body, values = "", dict[str, str]()
    if verb == "PREPARE":
        start = next((one.end for one in text.tokens if one.word == "AS"), len(sql))
        body = text.sql[start:]
    elif verb == "EXECUTE":
        for number, part in enumerate(between_commas(text.tokens[3:-1]), 1):
            is_named = len(part) > 2 and part[1].text in (":=", "=>")
            key = part[0].name.lower() if is_named else str(number)
            values[key] = text.text(part[2:] if is_named else part)
    return Prepared(verb, name, body, values)


def executed(body: str, prepared: Prepared) -> str:
    """A prepared statement with its parameters filled in. Raises QueryError on a mismatch."""
    tokens = tokenize(body)
    parts, end, unnamed, used = [], 0, 0, set()
    for at, token in enumerate(tokens):
        if token.text == "?":
            unnamed += 1
            name, last = str(unnamed), token
        elif token.text == "$" and at + 1 < len(tokens):
            last = tokens[at + 1]
            name = last.text.lower()
        else:
            continue
        if name not in prepared.values:
            raise QueryError(
                f"EXECUTE {prepared.name} has no value for the parameter ${name}. "
                f"Values given: {', '.join(prepared.values) or 'none'}."
            )
        used.add(name)
        parts += [body[end : token.start], f"({prepared.values[name]})"]
        end = last.end
    if unused := [name for name in prepared.values if name not in used]:
        raise QueryError(
            f"EXECUTE {prepared.name} gives a value for {', '.join(unused)}, but the prepared "
            "statement has no such parameter. Leave the value out."
        )
    return "".join([*parts, body[end:]])
