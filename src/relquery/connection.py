"""The connection, where both stacks meet: a host database, a backend, a ledger."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn, overload

from relquery.backends.base import Answering, Backend
from relquery.backends.embedders import embedder_of, hint_for
from relquery.backends.load import (
    answering_of,
    backend_of,
    default_form,
    load_named,
    with_ledger,
)
from relquery.config import DEFAULT_FORM, Nulls, Order, PromptForm, QueryConfig
from relquery.errors import ConfigError, MarkupError, QueryError
from relquery.ledger import Ledger
from relquery.pii.patterns import kinds_of
from relquery.progress.watch import Progress, Watch, check_progress, watching
from relquery.retrieval.corpus import IndexShelf
from relquery.retrieval.embedder import Embedder
from relquery.spans.orders import Orders
from relquery.sql import tables as hosts
from relquery.sql.executor.context import ExecutionContext, Models
from relquery.sql.host.database import Database
from relquery.sql.query import explain_query, run_query
from relquery.sql.record import Recording
from relquery.sql.result import Result
from relquery.sql.retrieval.corpora import Corpora as Searched
from relquery.sql.retrieval.corpora import with_tables
from relquery.sql.retrieval.functions import install as install_search
from relquery.sql.retrieval.functions import install_count
from relquery.sql.settings import read_sampling
from relquery.sql.temp_tables import LentTables
from relquery.sql.variables import callers_variables, lent

if TYPE_CHECKING:
    import duckdb

    from relquery.ir.nodes import Node
    from relquery.ir.optimize import Goal
    from relquery.markup.schema import Schema
    from relquery.markup.schemas import PromptResult, Schemas
    from relquery.spans.corpus import Corpora
    from relquery.spans.explain import SpanExplanation
    from relquery.spans.work import SpanResult
    from relquery.sql.explain.explanation import SqlExplanation
    from relquery.sql.preview import Preview

_HERE = {
    **dict.fromkeys(
        ("arrow", "description", "df", "fetch_df", "fetchall", "fetchdf", "fetchmany", "fetchone",
         "pl", "show"),
        "result = con.sql(...), and read the result",
    ),
    **dict.fromkeys(
        ("from_arrow", "from_csv_auto", "from_df", "from_parquet", "read_csv", "read_json",
         "read_parquet"),
        "con.register('t', FILE_OR_FRAME), or con.sql(\"FROM 'FILE'\")",
    ),
    **dict.fromkeys(("begin", "commit", "rollback", "checkpoint"), "con.sql('BEGIN') and the like"),
    **dict.fromkeys(("table", "view"), "con.sql('FROM t')"),
    **dict.fromkeys(("install_extension", "load_extension"), "con.sql('INSTALL ...; LOAD ...')"),
    "append": "con.sql('INSERT INTO t FROM df'), where `df` is the variable",
    "cursor": "rq.connect(..., database='file.duckdb') once more for another thread",
    "executemany": "con.sql('INSERT INTO t FROM df'), where `df` is a frame with the rows",
    "query": "con.sql(...)",
}  # fmt: skip
"""What stands in place of methods of DuckDB's connections."""


def connect(
    source: str | Backend | Answering | None = None,
    /,
    *,
    model: str | Backend | Answering | None = None,
    database: str | Path | duckdb.DuckDBPyConnection = ":memory:",
    order: Order = "tree",
    on_error: Literal["null", "raise"] = "null",
    guard: float | None = None,
    guard_rows: int = 50,
    form: PromptForm | None = None,
    nulls: Nulls = "skip",
    redact: bool | Sequence[str] = False,
    ledger: str | Path | None = ":memory:",
    embedder: str | Embedder | None = "auto",
    index: str | Path | None = None,
    progress: Progress = None,
    clock: Callable[[], float] = time.perf_counter,
    models: Mapping[str, str | Backend | Mapping[str, Any]] | None = None,
    cascade: Mapping[str, Any] | None = None,
    **options: Any,
) -> Connection:
    """Open a database that can call a model.

    source: what answers: the name or folder of a model for the embedded engine, "openai:NAME" for
        a provider's model, the address of a server (http://HOST:8000/v1), "vllm:NAME" for vLLM in
        this process, or a backend.
    model: the same, by name; or the name of a model at an address.
    database: a DuckDB file whose tables queries can use, ":memory:", or a connection from
        duckdb.connect(...), which is used as is: its tables, views and settings are available,
        registered tables stay in it, and it is not closed.
    order, on_error, guard, guard_rows, form, nulls: see QueryConfig. form: None for "text", and for
        "json" with the demo model, which knows no other.
    redact: what personal data is replaced by placeholders before cells are sent, and put back in
        answers: True for all that rules find, or a list of kinds; see docs/sql.md.
    ledger: where answers are stored: ":memory:" for the lifetime of the connection, a file to
        reuse them later, None for nowhere (benchmarks). Only calls that would give the same
        answer again are looked up: temperature 0 or a seed.
    embedder: what compares texts for passages, AI_SIMILARITY and the like: "auto" for an encoder
        that `relquery models fetch` has installed, else "tfidf"; "tfidf" for words and
        spelling, a folder or Hugging Face name of an encoder, "openai:NAME" for an endpoint, or
        what `load_embedder` gives.
    index: a folder where indexes of searched tables are kept; None for memory.
    progress: False shows no progress, a function is called with (stage, answers so far, total
        answers). Otherwise a line is shown while queries run, if standard error is a terminal, or
        in a notebook.
    models: what calls may name with `model :=` beside the names that `model` takes: another name
        for one, a backend, or the keywords for one:
        {"strong": {"model": "openai:gpt-5.4", "budget": "5USD"}}. Each is opened when a statement
        first names it, and has a budget of its own. It has the connection's options that fit: keys
        and addresses only for the same provider.
    cascade: a cheap model that answers the clear rows of AI_FILTER and AI_CLASSIFY, and what the
        result must meet: {"proxy": "openai:NAME", "precision": 0.9, "recall": 0.9,
        "confidence": 0.95}, or "accuracy" alone. A call may set its own.
    options: settings of the embedded engine, e.g. cache_tokens, or of a provider, e.g. base_url.

    Raises ConfigError, ModelError, MissingExtraError or TableError (for `database`).
    """
    check_progress(progress)
    if source is None and model is None and options:
        given = ", ".join(sorted(options))
        raise ConfigError(
            f"connect was given {given}, and no model. Write rq.connect('demo', ...)."
        )
    answering, options = answering_of(source, model, options)
    how = form or DEFAULT_FORM, nulls, kinds_of(redact), cascade
    config = QueryConfig(order, on_error, guard, guard_rows, *how)
    options = with_ledger(options, ledger)
    with ExitStack() as opened:  # closes what is open if the rest fails
        host = opened.enter_context(closing(Database.open(database)))
        known = None if ledger is None else opened.enter_context(closing(Ledger.open(ledger)))
        owned = isinstance(answering, str)
        backend = backend_of(answering, options)
        if form is None:
            config = replace(config, form=default_form(backend.name))
        install_count(host, backend)
        shelf = IndexShelf.open(index, embedder_of(embedder), hint_for(embedder))
        corpora = install_search(host, shelf)
        others = models_of(models or {}, answering if owned else "", options, ledger, form)
        host.kept.models = frozenset((*others.own, *(models or {})))
        opened.pop_all()
    return Connection(host, backend, config, known, clock, owned, corpora, others, progress)


def models_of(
    models: Mapping[str, Any],
    own: str,
    options: Mapping[str, Any],
    ledger: str | Path | None,
    form: PromptForm | None,
    load: Callable[..., Backend] = load_named,
) -> Models:
    """What calls may name; see `connect`. own: the connection's model. Raises ConfigError."""
    if not isinstance(models, Mapping) or not all(isinstance(name, str) for name in models):
        raise ConfigError(
            f"models is {models!r:.60}; it must be a dict, e.g. {{'strong': 'openai:NAME'}}."
        )
    known = {k: v for k, v in models.items() if isinstance(v, str | Mapping)}
    given = {k: backend_of(v, {}) for k, v in models.items() if k not in known}
    return Models(
        (own,) if own else (),
        lambda name: load(name, known, own, options, ledger),
        lambda name: form or default_form(name),
        given,
    )


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Connection:
    """A database that can call a model. Made by `connect`; not thread-safe.

    owns_backend: whether closing the connection closes the backend.
    """

    database: Database
    backend: Backend
    config: QueryConfig
    ledger: Ledger | None
    clock: Callable[[], float]
    owns_backend: bool
    searched: Searched
    """The tables that statements and span queries search."""
    models: Models
    """Those that calls may name beside the connection's."""
    progress: Progress = None
    orders: Orders = field(default_factory=Orders)
    """The order in which bags of span queries were asked."""
    lent: LentTables = field(default_factory=LentTables)
    """Tables that frames have registered."""
    _schemas: list[Schemas] = field(default_factory=list)

    @property
    def schemas(self) -> Schemas:
        """The schemas that prompts may name."""
        if not self._schemas:
            from relquery.markup.schemas import Schemas

            self._schemas.append(Schemas(self.backend))
        return self._schemas[0]

    @overload
    def register(self, name: Schema, *, prepare: bool = False) -> None: ...

    @overload
    def register(self, name: str, data: object) -> None: ...

    def register(self, name: str | Schema, data: object = None, *, prepare: bool = False) -> None:
        """Make a file or an object of another library readable as a table; see sql.tables.

        Or let prompts name a schema (see `prompt`). prepare: compute the states of its modules now;
        otherwise those of each are computed when a prompt first imports it.
        """
        if not isinstance(name, str):
            from relquery.markup.schema import Schema
        if isinstance(name, str) or not isinstance(name, Schema):
            if isinstance(name, str) and name.lstrip().startswith("<"):
                raise MarkupError(
                    "register was given markup. Make a schema of it first: "
                    "con.register(rq.Schema.parse(TEXT))."
                )
            if data is None and isinstance(name, str) and name.lower().endswith(".xml"):
                raise MarkupError(
                    f"register was given the name {name!r} without a table. If it is a schema: "
                    f"con.register(rq.Schema.load({name!r}))."
                )
            if prepare:
                raise ConfigError("prepare=True is for schemas; a table has nothing to compute.")
            hosts.register(self.database, name, data)
            return
        with self._turn():
            self.schemas.add(name, prepare=prepare)

    def prompt(self, text: str, *, independent: bool = True, **sampling: Any) -> PromptResult:
        """Answer a prompt over a registered schema, written in markup (see docs/markup.md).

        The local engine computes the states of each module once, whatever is around it, so an
        answer may differ from that to the same text without modules. Other backends are sent plain
        text. independent: whether to use modules; False sends the same text without them. sampling:
        fields of Sampling, such as labels, schema, max_tokens or temperature.

        Raises MarkupError if the prompt does not fit its schema, and RequestError if it has no
        answer.
        """
        with self._turn():
            return self.schemas.ask(text, read_sampling(sampling), independent=independent)

    def unregister(self, name: str) -> None:
        """Take back a registered table. Raises TableError for a name that is none."""
        hosts.unregister(self.database, name)

    def tables(self) -> dict[str, list[str]]:
        """Columns of every table and view, by name."""
        return self.database.tables()

    def sql(
        self,
        query: str,
        params: Sequence[Any] | Mapping[str, Any] | None = None,
        *,
        order: Order | None = None,
        on_error: Literal["null", "raise"] | None = None,
        guard: float | Literal[False] | None = None,
        guard_rows: int | None = None,
        form: PromptForm | None = None,
        redact: bool | Sequence[str] | None = None,
        progress: Progress = None,
        record: bool | int = False,
        **sampling: Any,
    ) -> Result:
        """Run one or more statements, which may call LLM, AI_FILTER and the like; see docs/sql.md.

        The result has the rows of the last statement; its report and errors cover all of them.
        Frames, Arrow tables and results can be read by the names of their variables.
        params: a list of values for `?` and `$1`, or a dict for `$name`. A value can also be the
        prompt or an option of a call. order, on_error, guard, guard_rows, form, redact: override
        the connection's; guard=False turns its guard off. sampling: defaults for calls that do not
        set labels, schema, max_tokens, temperature, top_p, top_k, seed or stop. progress: True,
        False or a function in place of the connection's. record: keep what was sent, for
        `Result.write_html`; a number is how many prompts of each stage to keep in full (True: 200).

        Raises QueryError, TableError, and RequestError if on_error is "raise". The connection
        stays usable whatever happens.
        """
        if not isinstance(query, str):
            raise QueryError(f"query is {query!r:.60}; it must be a string of SQL.")
        settings = read_sampling(sampling, Connection.sql)
        config = self._config(order, guard, guard_rows, form, redact)
        config = replace(config, on_error=on_error or config.on_error)
        recording, seen = Recording.of(record), callers_variables()
        with lent(self.database, query, seen), self._watching(progress) as watch:
            context = self._context(config, form, watch, recording)
            return run_query(query, self.database, context, settings, params)

    def execute(
        self,
        query: str,
        params: Sequence[Any] | Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Result:
        """See `sql`, which connections of DuckDB call so too."""
        return self.sql(query, params, **options)

    def run(
        self,
        query: Node,
        *,
        for_: Goal = "cache",
        arity: int = 2,
        corpora: Corpora | None = None,
        independent: bool = True,
        progress: Progress = None,
    ) -> SpanResult:
        """Answer a span query, made with `relquery.span`.

        for_, arity: as for `relquery.optimize`; "attention" asks different and more questions,
            so answers differ. corpora: what `span.retrieve` reads, by name: texts, or a function of
            (query, limit) that returns texts. Other names are tables, "docs" or "docs.column",
            searched as by passages(...) in SQL. independent: False sends children of plus as
            ordinary text, for providers. progress: as for `sql`; a function is called with
            ("generations", answered so far, total).

        The ledger is not used: it stores answers without attention states, and outer generations
        reuse the states of inner ones.

        Raises QueryError, and RequestError if a generation fails.
        """
        from relquery.spans.run import run

        with self._turn(), self._watching(progress) as watch:
            return run(
                query,
                self.backend,
                for_=for_,
                arity=arity,
                corpora=with_tables(corpora, self.searched),
                independent=independent,
                progress=watch,
                orders=self.orders,
                clock=self.clock,
            )

    def run_bulk(
        self,
        queries: Sequence[Node],
        *,
        cache_tokens: int | None = None,
        for_: Goal = "cache",
        arity: int = 2,
        corpora: Corpora | None = None,
        independent: bool = True,
        progress: Progress = None,
    ) -> list[SpanResult]:
        """Answer span queries in an order that puts queries with shared content close in time.

        Results come in the order given; one that failed has an `error`.

        cache_tokens: the size of the backend's cache, if the backend does not report it. For the
            other arguments see `run`.
        """
        from relquery.spans.run import run_bulk

        with self._turn(), self._watching(progress) as watch:
            return run_bulk(
                queries,
                self.backend,
                cache_tokens=cache_tokens,
                for_=for_,
                arity=arity,
                corpora=with_tables(corpora, self.searched),
                independent=independent,
                progress=watch,
                orders=self.orders,
                clock=self.clock,
            )

    def preview(
        self,
        query: str,
        params: Sequence[Any] | Mapping[str, Any] | None = None,
        *,
        rows: int = 10,
        order: Order | None = None,
        form: PromptForm | None = None,
        redact: bool | Sequence[str] | None = None,
        progress: Progress = None,
        **sampling: Any,
    ) -> Preview:
        """Run a query on a few rows, and tell from them what it costs for all. Print the result.

        Each SELECT with calls gets at most `rows` of the rows that its FROM and its conditions
        without calls leave, drawn at random, and a group at most `rows` of its items. So there are
        at most `rows` calls for each call in the query. The other arguments are as for `sql`.

        Raises as `sql` does, and QueryError for a statement that is not a query with calls.
        """
        from relquery.sql.preview import preview_query

        settings = read_sampling(sampling, Connection.preview)
        seen = callers_variables()
        with lent(self.database, query, seen), self._watching(progress) as watch:
            context = self._context(self._config(order, None, None, form, redact), form, watch)
            return preview_query(query, self.database, context, settings, params, rows)

    @overload
    def explain(
        self,
        query: str,
        params: Sequence[Any] | Mapping[str, Any] | None = None,
        *,
        order: Order | None = None,
        guard: float | Literal[False] | None = None,
        guard_rows: int | None = None,
        form: PromptForm | None = None,
        redact: bool | Sequence[str] | None = None,
        selectivity: float | Mapping[str, float] | None = None,
        cost: bool = False,
        **sampling: Any,
    ) -> SqlExplanation: ...

    @overload
    def explain(
        self,
        query: Node,
        *,
        for_: Goal = "cache",
        arity: int = 2,
        corpora: Corpora | None = None,
        warm: bool = False,
    ) -> SpanExplanation: ...

    def explain(
        self, query: str | Node, params: Any = None, **options: Any
    ) -> SqlExplanation | SpanExplanation:
        """Explain what `sql` or `run` would do with a query, without asking. Print the result.

        For SQL: its calls, how many of each, their tokens, seconds and price as far as these are
        known. params, order, guard, guard_rows, form, redact, sampling: see `sql`. selectivity: the
        share of rows that pass each condition on answers, or a dict by stage, {"filter 1": 0.3};
        later stages then show what is expected, not a bound. cost: what the calls cost at least, as
        expected and at most, also in the table's order and as a batch. For a span query: rules,
        prompts, tokens, what is in the cache. for_, arity, corpora: see `run`; warm: run the inner
        generations first, see relquery.spans.explain.
        """
        if isinstance(query, str):
            return self._explain_sql(query, params, **options)
        if params is not None:
            raise ConfigError("params are the parameters of SQL; a span query has none.")
        from relquery.spans.explain import explain

        with self._turn():
            options["corpora"] = with_tables(options.get("corpora"), self.searched)
            return explain(query, self.backend, orders=self.orders, **options)

    def _explain_sql(
        self,
        query: str,
        params: object,
        *,
        order: Order | None = None,
        guard: float | Literal[False] | None = None,
        guard_rows: int | None = None,
        form: PromptForm | None = None,
        redact: bool | Sequence[str] | None = None,
        selectivity: float | Mapping[str, float] | None = None,
        cost: bool = False,
        **sampling: Any,
    ) -> SqlExplanation:
        config = self._config(order, guard, guard_rows, form, redact)
        context = self._context(config, form, None)
        settings = read_sampling(sampling, Connection._explain_sql)
        with lent(self.database, query, callers_variables()):
            return explain_query(
                query, self.database, context, settings, params, selectivity, costs=cost
            )

    def _config(
        self,
        order: Order | None,
        guard: float | None,
        guard_rows: int | None,
        form: PromptForm | None,
        redact: bool | Sequence[str] | None,
    ) -> QueryConfig:
        """The connection's settings, with those that are given for one query."""
        least = self.config.guard if guard is None else guard
        return replace(
            self.config,
            order=order or self.config.order,
            guard=None if guard is False else least,
            guard_rows=self.config.guard_rows if guard_rows is None else guard_rows,
            form=self.config.form if form is None else form,
            redact=self.config.redact if redact is None else kinds_of(redact),
        )

    def _context(
        self,
        config: QueryConfig,
        form: PromptForm | None,
        watch: Watch | None,
        recording: Recording | None = None,
    ) -> ExecutionContext:
        """form: that of all calls of a query, whatever model they name; None for each its own."""
        models, heard = self.models, None if watch is None else watch.heard
        if form is not None:
            models = replace(models, form_of=lambda name: form)
        parts = config, self.ledger, watch, self.clock, recording, heard
        return ExecutionContext(self.backend, *parts, models=models)

    def waiting(self) -> float:
        """Seconds until a model is sent more, because of a provider's limits."""
        opened = (self.backend, *self.models.opened.values(), *self.models.given.values())
        tallies = (backend.tally() for backend in opened)
        return max((tally.waiting for tally in tallies if tally is not None), default=0.0)

    def _watching(self, progress: Progress) -> AbstractContextManager[Watch | None]:
        """A block with what a query tells of its progress to. Raises ConfigError."""
        wanted = self.progress if progress is None else progress
        return watching(wanted, self.clock, waiting=self.waiting)

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Keep other threads out. Raises QueryError if one is in, and after `close`."""
        with self.database.held():
            self.database.check_open()
            yield

    def __getattr__(self, name: str) -> NoReturn:
        remedy = f" Write {_HERE[name]}." if name in _HERE else ""
        raise AttributeError(f"A connection has no {name!r}.{remedy}", name=name, obj=self)

    def __repr__(self) -> str:
        return f"<relquery connection to {self.backend.name}>"

    def close(self) -> None:
        """Close database, indexes and ledger, and the models that were loaded by name."""
        self.database.close()
        self.searched.shelf.close()
        if self.ledger is not None:
            self.ledger.close()
        self.models.close()
        if self.owns_backend:
            self.backend.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
