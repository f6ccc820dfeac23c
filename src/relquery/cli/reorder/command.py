"""`relquery reorder`: orders of one table side by side."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from relquery.cli.reorder import figures
from relquery.cli.reorder.figures import ALL, Comparison, compare, methods_of
from relquery.cli.reorder.files import BatchOptions, document, reading, said, write_order
from relquery.cli.reorder.names import read_dependency, split_names
from relquery.cli.terminal.console import errors_console
from relquery.cli.terminal.exits import ROWS_LOST
from relquery.cli.terminal.files import find_file
from relquery.cli.terminal.interrupt import exits_when_interrupted
from relquery.cli.terminal.options import command_of
from relquery.cli.terminal.show import say, to_json
from relquery.cli.terminal.tables import check_rows, read_text
from relquery.errors import ConfigError
from relquery.reordering.cost.meter import WEIGHTS
from relquery.reordering.prompts.answers import Answers
from relquery.reordering.prompts.batch import Batch
from relquery.reordering.prompts.template import Template


@dataclass(frozen=True, kw_only=True)
class _Reorder(BatchOptions):
    """Order a table so that prompts share prefixes, and show what each method achieves.

    A row becomes a prompt with one line "column: value" per field. Put column names that contain
    a comma in double quotes: --columns 'id,"city, state"'.

    [bold]Examples[/bold]

    relquery reorder demo:movies

    relquery reorder reviews.csv --fd 'id, name' --fd 'city -> state' --method tree -o order.csv

    relquery reorder passages.parquet --bag p1,p2,p3 --tokenizer demo --cache-tokens 65536

    relquery reorder reviews.csv --weight claude-sonnet-5 --requests-per-minute 600

    relquery reorder reviews.csv -w claude-sonnet-5 --template @question.txt --batch batch.jsonl

    relquery reorder reviews.csv --answers results.jsonl --answered answered.csv
    """

    file: Annotated[
        str,
        typer.Argument(help="A CSV, Parquet, JSON or DuckDB file, or a demo table: demo:movies."),
    ]
    table: Annotated[
        str | None, typer.Option("--table", "-t", help="Which table of a DuckDB file.")
    ] = None
    columns: Annotated[
        str | None, typer.Option("--columns", "-c", metavar="A,B,...", help="Only these columns.")
    ] = None
    rows: Annotated[int | None, typer.Option(min=0, help="Use only the first N rows.")] = None
    bag: Annotated[
        list[str] | None,
        typer.Option(
            metavar="A,B,...",
            help="Columns whose values are interchangeable, such as passages. May be repeated.",
        ),
    ] = None
    fd: Annotated[
        list[str] | None,
        typer.Option(
            metavar="DEPENDENCY",
            help="'a -> b', 'a, b -> c', or 'a, b' if each determines the other. May be repeated.",
        ),
    ] = None
    method: Annotated[
        str, typer.Option("--method", "-m", help="original, fixed, ggr, tree, ophr or all.")
    ] = ALL
    tokenizer: Annotated[
        str | None,
        typer.Option(
            help="Count hits in tokens of this tokenizer: demo, a model folder or tokenizer.json.",
        ),
    ] = None
    prefix: Annotated[
        str, typer.Option(metavar="TEXT|@FILE", help="Text that precedes the fields of every row.")
    ] = ""
    cache_tokens: Annotated[
        int | None, typer.Option(help="Pick the order with the most hits in an LRU cache this big.")
    ] = None
    requests_per_minute: Annotated[
        float | None, typer.Option(help="Request rate; used with a price as --weight.")
    ] = None
    seconds: Annotated[float | None, typer.Option(help="Approximate search time of tree.")] = None
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Write the best order to a .parquet, .csv or .json file: row numbers (from 0) "
            "in the order to send, each with its fields in order.",
        ),
    ] = None
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the figures as JSON; the order goes to --output.")
    ] = False

    def __call__(self) -> None:
        """Run it."""
        if self.output is not None:
            check_rows(self.output)
        template = self._template()
        self.check()
        settings = self._settings(template)
        given = [each for text in self.fd or () for each in read_dependency(text)]
        methods = methods_of(self.method)
        with exits_when_interrupted(), errors_console().status("reading") as status:
            kept = None if self.columns is None else split_names(self.columns)
            data = read_text(find_file(self.file), table=self.table, columns=kept, rows=self.rows)
            came = self.put_back(data, settings["bags"])
            comparison, written = None, None
            if came is None or self.batch is not None or self.output is not None:
                comparison = compare(data, methods, given, self.seconds, status.update, **settings)
                best = comparison.schedules[comparison.best]
                written = self.write(best, template, came)
                if self.output is not None:
                    write_order(best, comparison.names, self.output)
        self._show(comparison, written, came)
        if came is not None and came.errors:
            raise typer.Exit(ROWS_LOST)

    def _show(
        self, comparison: Comparison | None, written: Batch | None, came: Answers | None
    ) -> None:
        if self.as_json:
            figured = {} if comparison is None else figures.document(comparison)
            typer.echo(to_json({"file": self.file, **figured, **document(written, came)}))
            return
        table_of = {"--table": self.table, "--columns": self.columns, "--rows": self.rows}
        for text in said(written, came, reading(self.file, table_of)):
            say(text)
        if comparison is not None and written is not None:
            Console(soft_wrap=True).print(figures.in_short(comparison), highlight=False)
        elif comparison is not None:
            _print(comparison, estimated=self.tokenizer is None)

    def _settings(self, template: Template | None) -> dict[str, Any]:
        """Settings of `reorder`. Raises ConfigError for those that would do nothing."""
        priced = self.weight not in WEIGHTS
        if self.requests_per_minute is not None and not priced:
            raise ConfigError(
                "--requests-per-minute only matters with a price. Give one as --weight, e.g. "
                "claude-sonnet-5."
            )
        counts = priced or self.tokenizer is not None or self.cache_tokens is not None
        if self.prefix and not counts:
            raise ConfigError(
                "--prefix only matters when tokens are counted. Give --tokenizer, --cache-tokens, "
                "or a price as --weight."
            )
        prefix = _text("--prefix", self.prefix)
        return {
            "weight": self.weight,
            "tokenizer": None if self.tokenizer is None else _load_tokenizer(self.tokenizer),
            "prefix": prefix if template is None else template.prefix,
            "cache_tokens": self.cache_tokens,
            "requests_per_minute": self.requests_per_minute,
            "bags": [split_names(names) for names in self.bag or ()],
        }

    def _template(self) -> Template | None:
        """The template of prompts, if one is given. Raises ConfigError."""
        if self.template is None:
            if self.system:
                raise ConfigError("--system only has an effect with --template and --batch.")
            return None
        if self.prefix:
            raise ConfigError(
                "--prefix cannot be used with --template, which has the text before the fields. "
                "Leave --prefix out."
            )
        return Template(_text("--template", self.template), _text("--system", self.system))


reorder = command_of(_Reorder)


def _load_tokenizer(name: str) -> Callable[[list[str]], list[list[int]]]:
    from relquery.backends.tokenizer import load_tokenizer

    return load_tokenizer(name)


def _text(option: str, text: str) -> str:
    """The text of an option, or of the file that it names. Raises ConfigError."""
    if not text.startswith("@"):
        if _is_file(text):
            what = option.removeprefix("--")
            raise ConfigError(f"{text} is a file. Write @{text} to read the {what} from it.")
        return text
    try:
        return Path(text[1:]).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"{option} {text}: the file {text[1:]} cannot be read: {error.strerror}. "
            "Check its name."
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{option} {text}: the file cannot be read as text: {error}.") from error


def _is_file(text: str) -> bool:
    try:
        return Path(text).is_file()
    except (OSError, ValueError):  # too long for a path, or with characters that none has
        return False


def _print(comparison: Comparison, estimated: bool) -> None:
    console = Console(soft_wrap=True)

    def show(text: str) -> None:
        console.print(text, markup=False, highlight=False)

    best = comparison.reports[comparison.best]
    console.print(figures.methods_table(comparison))
    show("")
    if best.tokens is not None:
        console.print(figures.tokens_table(comparison))
        show(figures.tokens_note(best.tokens, estimated) + "\n")
    if len(comparison.schedules) > 1:
        criterion = figures.criterion(comparison)
        show(f"Best: {best.method} ({criterion}), weight {best.weight}.")
    if not figures.is_cached(comparison) and best.bill is not None:
        show(figures.too_short(best.bill))
    for method, reason in comparison.left_out.items():
        show(f"{method} was skipped. {reason}")
    for text in figures.dependency_lines(best):
        show(text)
    show("")
    console.print(figures.depths_table(best.depths))
