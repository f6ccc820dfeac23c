"""A lazy frame: verbs that ask a model, and the relational ones that a pipeline needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, get_args

from relquery.config import CASCADE
from relquery.connection import Connection
from relquery.errors import ConfigError, UnknownVerbError, type_of, unknown_value
from relquery.frames.arguments import (
    Names,
    call,
    check_count,
    check_labels,
    check_names,
    check_options,
    check_share,
    names_in,
    read_outputs,
    written,
)
from relquery.frames.data import read_source
from relquery.frames.expressions import (
    Langex,
    NamedColumn,
    Reads,
    check_named,
    find_column,
    finder,
    has_column,
    read_expression,
    read_langex,
    side_finder,
)
from relquery.frames.hints import ROWS, no_dict, no_item, no_name, no_order, no_such
from relquery.frames.relation import (
    EARLIER,
    LATER,
    LEFT,
    RIGHT,
    Blocking,
    Columns,
    How,
    Relation,
    join,
    nearest,
)
from relquery.frames.runs import Runs
from relquery.sql.names import quoted, quoted_text

_SHOWN = 3  # names in a message
SAME = "Do {0} and {1} say the same?"
"""What a pair of texts is asked, to confirm that they are duplicates."""


def frame(data: object, connection: Connection | None = None) -> Frame:
    """A lazy frame over a table.

    data: a pandas or polars frame, a polars LazyFrame, an Arrow table, a relation of DuckDB, a
    list of dicts, a dict of columns, the path of a file, or the name of a table of the connection.
    The rows of a table that is in memory are those that it has now. A LazyFrame is collected when
    the frame first runs; a file and a table of the connection are read whenever it runs.
    connection: needed; what asks the model.

    Raises TableError, UnknownTableError, and ConfigError without a connection.
    """
    if not isinstance(connection, Connection):
        given = "no" if connection is None else f"{type_of(connection)} as its"
        raise ConfigError(
            f"rq.frame was given {given} connection, which says which model is asked. Make one: "
            "con = rq.connect('demo'), and then rq.frame(data, con)."
        )
    source, columns = read_source(data, connection)
    return Frame(Relation.read(source, columns), connection, source.library)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Frame(Runs):
    """A pipeline. Each verb gives a new frame, and nothing runs before `collect` and the like.

    Options of the verbs that ask: max_tokens, temperature, top_p, top_k, seed, stop, form, nulls,
    model.
    """

    def sem_filter(self, instruction: str, *, output: str | None = None, **options: Any) -> Frame:
        """The rows for which the model says yes.

        An instruction without a question mark is a claim, and is asked as `Is this true? CLAIM`.

        output: keep all rows, and put what the model says into a column of this name. options: also
        `threshold`, how likely yes must be, 0 to 1; and `proxy`, `precision`, `recall`, `accuracy`
            and `confidence`, which let a cheap model decide the clear rows.
        """
        langex = self._langex(instruction, "sem_filter")
        given = check_options(options, "sem_filter", "threshold", *CASCADE)
        asked = call("AI_FILTER", [quoted_text(langex.claim.prompt)], langex.fields, given)
        if output is not None:
            return self._extended((output,), asked, _reads(langex), "sem_filter")
        return self._on(self.relation.keep(asked, _reads(langex)))

    def sem_map(
        self, instruction: str, output: str = "_map", *, labels: Sequence[str] = (), **options: Any
    ) -> Frame:
        """New columns with the model's answers.

        output: a name and a type, "tag VARCHAR"; or several, "name VARCHAR, amount DECIMAL(10,2)".
        labels: the answer is one of these texts.
        """
        langex = self._langex(instruction, "sem_map")
        outputs = read_outputs(output, "sem_map")
        given = check_options(options, "sem_map", "retry")
        is_one = len(outputs) == 1
        if not (is_one and outputs[0].is_text):
            given["output"] = outputs[0].kind if is_one else written(outputs)
        if not isinstance(labels, tuple) or labels:
            given["labels"] = check_labels(labels, "sem_map")
        value = call("LLM", [quoted_text(langex.prompt)], langex.fields, given)
        names = tuple(output.name for output in outputs)
        return self._extended(names, value, _reads(langex), "sem_map", is_struct=not is_one)

    def sem_extract(
        self,
        columns: Names,
        output: str | Mapping[str, str | None],
        *,
        instruction: str | None = None,
        **options: Any,
    ) -> Frame:
        """New columns with values that are extracted from the text of others.

        output: names and types, "name VARCHAR, amount DECIMAL(10,2)", or a dict with what each new
        column of text is to hold: {"name": "who wrote it"}. instruction: more about the task.
        """
        fields = [self._field(name) for name in names_in(columns)]
        given = check_options(options, "sem_extract", "retry")
        if isinstance(output, Mapping):
            names = tuple(output)
            given["output"] = {name: about or "" for name, about in output.items()}
        else:
            outputs = read_outputs(output, "sem_extract")
            names = tuple(output.name for output in outputs)
            given["output"] = written(outputs)
        given["instruction"] = instruction
        value = call("AI_EXTRACT", [], fields, given)
        reads = frozenset(field.name for field in fields)
        return self._extended(names, value, reads, "sem_extract", is_struct=True)

    def sem_classify(
        self,
        instruction: str,
        labels: Sequence[str],
        output: str = "_class",
        *,
        multi: bool = False,
        **options: Any,
    ) -> Frame:
        """A new column with one of some labels; with `multi` the list of those that apply."""
        langex = self._langex(instruction, "sem_classify")
        given = check_options(options, "sem_classify", "proxy", "accuracy", "confidence")
        given["labels"] = check_labels(labels, "sem_classify")
        given |= {"instruction": langex.prompt, "multi": multi or None}
        value = call("AI_CLASSIFY", [], langex.fields, given)
        return self._extended((output,), value, _reads(langex), "sem_classify")

    def sem_score(self, instruction: str, output: str = "_score", **options: Any) -> Frame:
        """A new column with how likely the model says yes, 0 to 1."""
        langex = self._langex(instruction, "sem_score")
        given = check_options(options, "sem_score")
        value = call("AI_SCORE", [quoted_text(langex.claim.prompt)], langex.fields, given)
        return self._extended((output,), value, _reads(langex), "sem_score")

    def sem_agg(
        self,
        instruction: str,
        output: str = "_output",
        *,
        by: Names = (),
        columns: Names = (),
        **options: Any,
    ) -> Frame:
        """One answer for all rows, or one for each group of equal values in `by`.

        Groups are in the order of their keys. columns: what the model sees of a row, if the
        instruction names no column.
        """
        langex = self._langex(instruction, "sem_agg", needs_column=not columns)
        fields = list(dict.fromkeys([*langex.fields, *map(self._field, names_in(columns))]))
        given = check_options(options, "sem_agg")
        asked = call("AI_AGG", [quoted_text(langex.spoken)], (), given).removesuffix(")")
        asked = ", ".join([asked, *(field.sql for field in fields)])
        keys = tuple(self._field(name).name for name in names_in(by))
        check_names([*keys, output], "sem_agg")
        return self._on(self.relation.group(keys, output, asked))

    def sem_topk(self, instruction: str, k: int, *, by: Names = (), **options: Any) -> Frame:
        """The k rows that fit best, best first; with `by` those of each group.

        The model scores each row by itself; rows with equal scores keep their order.
        """
        langex = self._langex(instruction, "sem_topk").criterion
        given = check_options(options, "sem_topk")
        count = check_count(k, "k", "sem_topk")
        if not by:
            rank = call("AI_RANK", [quoted_text(langex.prompt)], langex.fields, given)
            return self._on(self.relation.sort(rank).limit(count))
        asked = Langex(("Is this a good match for: ", *langex.parts, "?"), langex.fields)
        value = call("AI_SCORE", [quoted_text(asked.prompt)], langex.fields, given)
        keys = tuple(self._field(name).name for name in names_in(by))
        return self._on(self.relation.best(value, keys, count))

    def sem_join(
        self,
        other: Frame | object,
        instruction: str,
        how: str = "inner",
        *,
        blocking: float | None = None,
        recall_sample: int = 100,
        seed: int = 0,
        **options: Any,
    ) -> Frame:
        """The pairs of rows for which the model says yes: "{text:left} is about {name:right}".

        A name that only one side has needs no side. how: "inner", "left", "semi" or "anti".
        Columns that both sides have are called `name:left` and `name:right`. Pairs are in the order
        of the left rows, then of the right ones.

        blocking: ask only about pairs whose texts have at least this cosine; None asks about all.
        Pairs that it leaves out are lost if they match, so `result` measures its recall on
        `recall_sample` pairs of those left out, which are asked as well; 0 measures nothing.
        """
        if isinstance(other, str) and not isinstance(instruction, str):
            raise ConfigError("sem_join: Give the other frame first, then the instruction.")
        if how not in get_args(How):
            raise ConfigError(unknown_value("how", how, get_args(How), of="sem_join"))
        right = self._other(other, "sem_join")
        find = side_finder(self.columns, right.columns, (LEFT, RIGHT))
        langex = read_langex(instruction, find, verb="sem_join")
        check_named(langex, instruction, "sem_join", self.columns)
        given = check_options(options, "sem_join", "classify")
        asked = call("AI_FILTER", [quoted_text(langex.claim.prompt)], langex.fields, given)
        texts = [_of_side(langex, side, instruction) for side in (LEFT, RIGHT)]
        near = None
        if blocking is not None:
            check_share(blocking, "blocking", "sem_join")
            sample = check_count(recall_sample, "recall_sample", "sem_join", least=0)
            near = Blocking(texts[0], texts[1], blocking, sample, seed)
        names = _paired(self.relation.columns, right.columns)
        if how in ("semi", "anti"):
            names = tuple(
                (name, NamedColumn(name, f"{LEFT}.{quoted(name)}")) for name in self.columns
            )
        check_names([name for name, _ in names], "sem_join")
        return self._on(join(self.relation, right, how, asked, near, names))  # type: ignore[arg-type]

    def sem_sim_join(
        self,
        other: Frame | object,
        left_on: str,
        right_on: str,
        k: int,
        *,
        score: str = "_scores",
    ) -> Frame:
        """Each row with the k rows of another frame whose texts are nearest, best first.

        Makes no LLM call. score: the column with the cosine.
        """
        right = self._other(other, "sem_sim_join")
        count = check_count(k, "k", "sem_sim_join")
        left = find_column(left_on, self.columns, "the left frame")
        two = find_column(right_on, right.columns, "the right frame")
        names = _paired(self.relation.columns, right.columns)
        check_names([*(name for name, _ in names), score], "sem_sim_join")
        return self._on(nearest(self.relation, right, (left, two), count, names, score))

    def sem_search(
        self,
        column: str,
        query: str,
        k: int,
        *,
        rerank: int | None = None,
        score: str | None = None,
        **options: Any,
    ) -> Frame:
        """The k rows whose texts are nearest to a query, best first. Rows need a text.

        rerank: of these, the model ranks all and keeps this many. score: a column for the cosine.
        """
        field = self._field(column)
        near = f"AI_SIMILARITY({field.sql}, {quoted_text(query)})"
        reads = frozenset({field.name})
        rows = self.relation.keep(f"{field.sql} IS NOT NULL", reads)
        if score is not None:
            check_names([field.name, score], "sem_search")
            rows = rows.extend((score,), near, reads)
        rows = rows.sort(f"{near} DESC NULLS LAST").limit(check_count(k, "k", "sem_search"))
        given = check_options(options, "sem_search")
        if rerank is None:
            return self._on(rows)
        rank = call("AI_RANK", [quoted_text(Langex((query,), ()).prompt)], [field], given)
        return self._on(rows.sort(rank).limit(check_count(rerank, "rerank", "sem_search")))

    def sem_dedup(
        self, column: str, threshold: float, *, ask: bool | str = False, **options: Any
    ) -> Frame:
        """The first row of each group of near-duplicates, and rows without a text.

        A text joins the first group whose first text is near, and else begins a group.

        threshold: the least cosine of near texts.
        ask: drop a row only if the model says that its text and an earlier one, which is near, say
        the same; or a question about `{0}` and `{1}`.
        """
        check_share(threshold, "threshold", "sem_dedup")
        name = find_column(column, self.columns)
        given = check_options(options, "sem_dedup")
        asks = None
        if ask:
            pair = [NamedColumn(name, f"{side}.{quoted(name)}") for side in (EARLIER, LATER)]
            asks = call("AI_FILTER", [quoted_text(SAME if ask is True else ask)], pair, given)
        return self._on(self.relation.distinct(name, threshold, asks))

    def select(self, *columns: Names) -> Frame:
        """Some of the columns, in this order; names, or lists of names."""
        names = [self._field(name).name for name in names_in(*columns)]
        return self._chosen([(name, name) for name in names], "select")

    def rename(self, names: Mapping[str, str] | None = None, **others: object) -> Frame:
        """Columns with other names, {old: new}."""
        if others or not isinstance(names, Mapping):
            raise ConfigError(no_dict(names, others))
        new = {self._field(old).name: name for old, name in names.items()}
        pairs = [(new.get(name, name), name) for name in self.columns]
        return self._chosen(pairs, "rename")

    def filter(self, condition: str) -> Frame:
        """The rows for which a condition in SQL holds, e.g. "year > 2000"."""
        given = read_expression(condition, "filter", self.columns, self.connection.database)
        return self._on(self.relation.keep(f"({given.sql})", given.reads))

    def with_columns(self, *unnamed: object, **values: str) -> Frame:
        """New columns, each an expression in SQL: total="price * 2". One sees those before it."""
        if unnamed:
            raise ConfigError(no_name(unnamed[0]))
        rows, database = self.relation, self.connection.database
        for name, value in values.items():
            given = read_expression(value, "with_columns", rows.columns, database)
            rows = rows.extend((name,), given.sql, given.reads, is_of_row=given.is_of_row)
        return self._on(rows)

    def sort(
        self, *columns: Names, descending: bool | Sequence[bool] = False, **others: object
    ) -> Frame:
        """Rows in the order of columns; NULL goes last, and equal rows keep their order.

        descending: for all columns, or a list with one for each.
        """
        if others:
            raise ConfigError(no_order(others))
        names = names_in(*columns)
        ways = list(descending) if isinstance(descending, Sequence) else [descending] * len(names)
        if not names or len(ways) != len(names):
            raise ConfigError(
                f"sort was given {len(names)} columns and {len(ways)} values of descending. Name a "
                "column, and give one value, or one for each column."
            )
        fields = [self._sorted_by(name) for name in names]
        keys = zip(fields, ways, strict=True)
        sql = (f"{field.sql}{' DESC' * bool(way)} NULLS LAST" for field, way in keys)
        return self._on(self.relation.sort(*sql))

    def limit(self, count: int, *, offset: int = 0) -> Frame:
        """The first rows, after `offset` that are left out."""
        skipped = check_count(offset, "offset", "limit", least=0)
        return self._on(self.relation.limit(check_count(count, "count", "limit", least=0), skipped))

    def head(self, count: int = 5, *, offset: int = 0) -> Frame:
        """As `limit`, with 5 rows unless told."""
        return self.limit(count, offset=offset)

    def _chosen(self, pairs: list[tuple[str, str]], verb: str) -> Frame:
        """Some columns under new names, as (new name, name)."""
        if not pairs:
            raise ConfigError(f"{verb} leaves no column. Name at least one.")
        check_names([new for new, _ in pairs], verb)
        return self._on(self.relation.choose(pairs))

    def _extended(
        self,
        names: tuple[str, ...],
        value: str,
        reads: Reads,
        verb: str,
        *,
        is_struct: bool = False,
    ) -> Frame:
        """With new columns of answers. Raises ConfigError for a name that the frame has."""
        check_names(names, verb)
        for name in names:
            if has_column(name, self.columns):
                there = find_column(name, self.columns)
                raise ConfigError(
                    f"{verb} would replace the column {there!r}. Give its output another name, "
                    f"or leave the column out first: f.select({self._others(there)})."
                )
        return self._on(self.relation.extend(names, value, reads, is_struct=is_struct))

    def _others(self, left_out: str) -> str:
        """The other columns as arguments, the first few of them."""
        names = [repr(name) for name in self.columns if name != left_out]
        return ", ".join([*names[:_SHOWN], *["..."] * (len(names) > _SHOWN)])

    def _on(self, relation: Relation) -> Frame:
        return Frame(relation, self.connection, self.library)

    def _other(self, other: Frame | object, verb: str) -> Relation:
        """The other side of a join. Raises ConfigError if it is of another connection."""
        right = other if isinstance(other, Frame) else frame(other, self.connection)
        if right.connection is not self.connection:
            raise ConfigError(
                f"{verb} was given a frame of another connection. Make both with the same one."
            )
        return right.relation

    def _sorted_by(self, name: object) -> NamedColumn:
        """A column to sort by. Raises ConfigError if it is an expression, as in ORDER BY."""
        column, _, way = name.strip().rpartition(" ") if isinstance(name, str) else ("", "", "")
        if name not in self.columns and column in self.columns and way.lower() in ("asc", "desc"):
            descending = ", descending=True" * (way.lower() == "desc")
            raise ConfigError(
                f"sort was given {name!r}; it takes names of columns: sort({column!r}{descending})."
            )
        return self._field(name)

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_") or name in (
            "relation",
            "connection",
            "library",
        ):  # copy and pickle ask for these
            raise AttributeError(name)
        known = (name for name in dir(type(self)) if not name.startswith("_"))
        raise UnknownVerbError(no_such(name, self.columns, known))

    def __getitem__(self, key: object) -> NoReturn:
        raise ConfigError(no_item(key, self.columns))

    def __len__(self) -> NoReturn:
        raise ConfigError(ROWS)

    def __bool__(self) -> bool:
        return True

    def _field(self, name: object) -> NamedColumn:
        """A column that a verb names. Raises ConfigError and UnknownColumnError."""
        if not isinstance(name, str):
            raise ConfigError(f"{name!r} is {type_of(name)}; a column is named by a text.")
        column = find_column(name, self.columns)
        return NamedColumn(column, quoted(column))

    def _langex(self, instruction: str, verb: str, *, needs_column: bool = True) -> Langex:
        langex = read_langex(instruction, finder(self.columns), verb=verb)
        return check_named(langex, instruction, verb, self.columns) if needs_column else langex


def _reads(langex: Langex) -> frozenset[str]:
    return frozenset(field.name for field in langex.fields)


def _of_side(langex: Langex, side: str, instruction: str) -> str:
    """SQL of the texts of one side of a join, as one text. Raises ConfigError if there is none, as
    all pairs of a row would get one answer.
    """
    columns = [field.sql for field in langex.fields if field.sql.startswith(f"{side}.")]
    if not columns:
        raise ConfigError(
            f"The instruction of sem_join, {instruction!r}, names columns of one side only. Name "
            "one of each, e.g. {a:left} and {b:right}; to ask about one frame, use sem_filter."
        )
    return columns[0] if len(columns) == 1 else f"concat_ws(' ', {', '.join(columns)})"


def _paired(left: Sequence[str], right: Sequence[str]) -> Columns:
    """Columns of both sides; those that both have get `:left` and `:right`, as LOTUS has them."""
    both = {name.lower() for name in left} & {name.lower() for name in right}
    return tuple(
        (
            f"{name}:{word}" if name.lower() in both else name,
            NamedColumn(name, f"{side}.{quoted(name)}"),
        )
        for word, side, names in (("left", LEFT, left), ("right", RIGHT, right))
        for name in names
    )
