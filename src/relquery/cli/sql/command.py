"""`relquery sql`: one query over tables in files, or a shell for many."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from relquery.cli.sql.options import (
    GUARD_ROWS,
    PREVIEW_ROWS,
    ProviderOptions,
    Setup,
    read_params,
    read_selectivity,
    rows_for,
)
from relquery.cli.sql.output import Format, check_overwritten, print_errors, print_outcome, save
from relquery.cli.sql.resume import noted
from relquery.cli.sql.running import Wanted, outcome_of
from relquery.cli.terminal.exits import ROWS_LOST
from relquery.cli.terminal.files import find_tables
from relquery.cli.terminal.options import (
    CacheTokens,
    Cost,
    Dtype,
    KvCacheDtype,
    Quantize,
    command_of,
)
from relquery.cli.terminal.show import say
from relquery.errors import ConfigError
from relquery.sql.parser.statements import is_explain

_ONLY_DEMO = (
    "Note: without --model the demo model answers. It only knows the bundled tables; for your own, "
    "give --model NAME."
)
_OF_ENGINE = ("cache_tokens", "cost", "dtype", "quantize", "kv_cache_dtype")
_OF_ONE_QUERY = (
    "param",
    "output",
    "selectivity",
    "explain",
    "explain_cost",
    "preview",
    "preview_rows",
    "html",
)


@dataclass(frozen=True, kw_only=True)
class _Sql(ProviderOptions):
    """Run a query whose SQL calls a model, or open a shell for several.

    [bold]Example[/bold]

    relquery sql "SELECT movietitle, AVG(LLM('Rate sentiment from 1 to 5.', reviewcontent)) AS
    score FROM movies GROUP BY ALL ORDER BY score DESC LIMIT 5" --table movies=demo:movies

    relquery sql "EXPLAIN SELECT movietitle FROM movies WHERE LLM('Positive?', reviewcontent) =
    'Yes'" --table movies=demo:movies

    relquery sql 'SELECT movietitle FROM movies WHERE LLM($ask, reviewcontent) = $is LIMIT $n'
    --table movies=demo:movies --param ask="Is it positive?" --param is=Yes --param n=5

    relquery sql --table movies=demo:movies
    """

    ctx: typer.Context
    query: Annotated[
        str | None,
        typer.Argument(
            help="SQL with LLM('prompt', column, ...), AI_FILTER, AI_CLASSIFY, AI_EXTRACT, AI_AGG, "
            "AI_SCORE or AI_RANK; '-' reads from stdin. Without a query, a shell opens in a "
            "terminal; elsewhere the query is read from stdin.",
            show_default=False,
        ),
    ] = None
    table: Annotated[
        list[str] | None,
        typer.Option(
            "--table",
            "-t",
            metavar="NAME=FILE",
            help="A CSV, Parquet, JSON or DuckDB file, or demo:movies, demo:tickets, "
            "demo:products, demo:films. NAME defaults to the file name.",
        ),
    ] = None
    param: Annotated[
        list[str] | None,
        typer.Option(
            "--param",
            "-p",
            metavar="NAME=VALUE",
            help="The value of the parameter $NAME: a JSON value (5, 0.5, true, null, [1, 2]), or "
            "else text. Write '\"5\"' for the text 5.",
        ),
    ] = None
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            help="demo (default), a Hugging Face name or folder, openai:NAME, anthropic:NAME, "
            "gemini:NAME, or random:layers=8,...",
        ),
    ] = None
    database: Annotated[str, typer.Option(help="A DuckDB file whose tables the query can use.")] = (
        ":memory:"
    )
    order: Annotated[
        str, typer.Option(help="original, fixed, ggr, tree, or ophr (small tables only).")
    ] = "tree"
    guard: Annotated[
        float | None,
        typer.Option(
            help="Ask some inputs also with their fields as written. If a smaller share of answers "
            "than this stays the same, send all fields as written. 0.95, for example."
        ),
    ] = None
    guard_rows: Annotated[
        int | None,
        typer.Option(help="How many inputs of each call --guard asks twice, at most (default 50)."),
    ] = None
    redact: Annotated[
        bool,
        typer.Option(
            "--redact",
            help="Send placeholders in place of the personal data that rules find in cells, and "
            "put the data back in the answers.",
        ),
    ] = False
    max_tokens: Annotated[
        int | None, typer.Option(help="Maximum answer length in tokens (default 256).")
    ] = None
    temperature: Annotated[float | None, typer.Option(help="0 (default) is greedy.")] = None
    seed: Annotated[int | None, typer.Option(help="Makes sampled answers reproducible.")] = None
    cache_tokens: CacheTokens = None
    prompt_form: Annotated[
        str | None,
        typer.Option(help="How prompts write fields: text (default), lines or json."),
    ] = None
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Turn off prefix caching.")] = False
    ledger: Annotated[
        Path | None,
        typer.Option(
            help="File that stores answers as they arrive, so an interrupted query can resume. "
            "Only at temperature 0 or with --seed."
        ),
    ] = None
    embedder: Annotated[
        str,
        typer.Option(
            help="What passages(...), AI_SIMILARITY and the like compare texts with: auto (an "
            "encoder that `relquery models fetch` has installed, else tfidf), tfidf, a folder or "
            "Hugging Face name of an encoder, or openai:NAME."
        ),
    ] = "auto"
    index: Annotated[
        Path | None,
        typer.Option(help="Folder that keeps the indexes of searched tables for later runs."),
    ] = None
    form: Annotated[Format, typer.Option("--format", "-f", help="How rows are printed.")] = (
        Format.TABLE
    )
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Write all rows to a .parquet, .csv or .json file."),
    ] = None
    html: Annotated[
        Path | None,
        typer.Option(
            "--html", help="Write a page about the run: what was reused, prompt by prompt."
        ),
    ] = None
    explain: Annotated[
        bool,
        typer.Option("--explain", help="Show what the query would ask, without calling the model."),
    ] = False
    explain_cost: Annotated[
        bool,
        typer.Option(
            "--explain-cost",
            help="Show what the query would cost in USD and seconds, at least, as expected and at "
            "most, without calling the model.",
        ),
    ] = False
    preview: Annotated[
        bool,
        typer.Option(
            "--preview",
            help="Run the query on a few rows, and show what it would cost for all of them.",
        ),
    ] = False
    preview_rows: Annotated[
        int | None, typer.Option(help="How many rows --preview takes (default 10).")
    ] = None
    selectivity: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NAME=]SHARE",
            help="With --explain: the share of rows that pass a condition on answers, e.g. 0.3, or "
            "'filter 1=0.3' for one stage. Later stages then show what is expected.",
        ),
    ] = None
    cost: Cost = None
    dtype: Dtype = None
    quantize: Quantize = None
    kv_cache_dtype: KvCacheDtype = None
    allow_errors: Annotated[
        bool, typer.Option("--allow-errors", help="Exit with 0 even if some rows have no value.")
    ] = False
    history: Annotated[
        bool,
        typer.Option(
            "--history/--no-history", help="Whether the shell keeps what is typed for later ones."
        ),
    ] = True

    def __call__(self) -> None:
        """Run it."""
        setup = self._setup()
        if self.query is None and _is_typed():
            self._check_for_shell()
            self._warn_of_demo()
            _open_shell(setup, self.form, keep_history=self.history)
            return
        text = _text(self.query)
        params, wanted = read_params(self.param or []), self._wanted(text)
        if self.output is not None:
            check_overwritten(self.output, setup.tables)
        self._warn_of_demo()
        runs = not wanted.explains and wanted.previews is None
        with (
            setup.connect(setup.backend()) as connection,
            noted(connection.ledger, self.ctx, text, setup.tables, runs=runs) as has_come,
        ):
            sampling = dict(setup.sampling)
            outcome = outcome_of(connection, wanted, text, params, sampling, ledger=self.ledger)
            has_come(outcome.result)
        result = outcome.result
        save(result, self.output, self.html)
        print_outcome(outcome, self.form)
        print_errors(result)
        if result.errors and not self.allow_errors:
            raise typer.Exit(ROWS_LOST)

    def _setup(self) -> Setup:
        options: dict[str, Any] = {"prefix_caching": False} if self.no_cache else {}
        for name in _OF_ENGINE:
            if (value := getattr(self, name)) is not None:
                options[name] = value
        options |= self.of_backend(self.model, self.ledger)
        return Setup(
            model=self.model,
            options=options,
            tables=find_tables(self.table or []),
            database=self.database,
            order=self.order,
            guard=self.guard,
            guard_rows=rows_for(
                "--guard", self.guard_rows, GUARD_ROWS, is_on=self.guard is not None
            ),
            ledger=self.ledger,
            embedder=self.embedder,
            index=self.index,
            sampling={
                "max_tokens": self.max_tokens,
                "temperature": self.temperature,
                "seed": self.seed,
            },
            form=self.prompt_form,
            redact=self.redact,
        )

    def _wanted(self, text: str) -> Wanted:
        explains = self.explain or self.explain_cost or is_explain(text)
        shares = read_selectivity(self.selectivity or [], explains=explains)
        seen = rows_for("--preview", self.preview_rows, PREVIEW_ROWS, is_on=self.preview)
        previews = seen if self.preview else None
        wanted = Wanted(explains, shares, previews, self.html, self.explain_cost)
        wanted.check(self.output)
        return wanted

    def _check_for_shell(self) -> None:
        """Raises ConfigError for an option that is about one query."""
        for name in _OF_ONE_QUERY:
            if getattr(self, name):
                option = f"--{name.replace('_', '-')}"
                raise ConfigError(
                    f"{option} is for one query. Give the query too, or leave {option} out."
                )

    def _warn_of_demo(self) -> None:
        """A word of warning if the demo model answers about other tables than its own."""
        if self.model is None and any("demo:" not in table for table in self.table or ()):
            say(_ONLY_DEMO)


sql = command_of(_Sql)


def _is_typed() -> bool:
    """Whether a person types on standard input."""
    return sys.stdin is not None and sys.stdin.isatty()


def _open_shell(setup: Setup, form: Format, *, keep_history: bool) -> None:
    from relquery.cli.shell.start import open_shell  # takes a tenth of a second to import

    open_shell(setup, form, keep_history=keep_history)


def _text(query: str | None) -> str:
    """The SQL of the argument, or of standard input. Raises ConfigError for the name of a file."""
    if query is None or query == "-":
        return sys.stdin.read()
    if " " not in query and Path(query).is_file():
        if Path(query).suffix.lower() == ".sql":
            raise ConfigError(f"{query} is a file. Write: relquery sql - < {query}")
        raise ConfigError(
            f'{query} is a file, not a query. Write: relquery sql "SELECT ..." --table {query}'
        )
    return query
