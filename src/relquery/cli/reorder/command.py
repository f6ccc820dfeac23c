"""`relquery reorder`: orders of one table side by side."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from relquery.cli.reorder import figures
from relquery.cli.reorder.figures import ALL, Comparison, compare, methods_of
from relquery.cli.reorder.files import BatchOptions, document, reading, said, write_order
from relquery.cli.reorder.names import read_dependency, split_names
from relquery.cli.terminal.exits import ROWS_LOST
from relquery.cli.terminal.interrupt import exits_when_interrupted
from relquery.cli.terminal.show import errors_console, say, to_json
from relquery.cli.terminal.tables import check_rows, find_file, read_text
from relquery.errors import ConfigError
from relquery.table.cost.meter import WEIGHTS
from relquery.table.prompts.template import Template
from relquery.table.reorder import DISCOVER

_BATCH = "Batches: prompts out, answers back"


def reorder(
    file: Annotated[
        str,
        typer.Argument(help="A CSV, Parquet, JSON or DuckDB file, or a demo table: demo:movies."),
    ],
    table: Annotated[
        str | None, typer.Option("--table", "-t", help="Which table of a DuckDB file.")
    ] = None,
    columns: Annotated[
        str | None, typer.Option("--columns", "-c", metavar="A,B,...", help="Only these columns.")
    ] = None,
    rows: Annotated[int | None, typer.Option(min=0, help="Use only the first N rows.")] = None,
    bag: Annotated[
        list[str] | None,
        typer.Option(
            metavar="A,B,...",
            help="Columns whose values are interchangeable, such as passages. May be repeated.",
        ),
    ] = None,
    fd: Annotated[
        list[str] | None,
        typer.Option(
            metavar="DEPENDENCY",
            help="'a -> b', 'a, b -> c', or 'a, b' if each determines the other. May be repeated.",
        ),
    ] = None,
    discover: Annotated[
        bool, typer.Option(help="Find functional dependencies in addition to --fd.")
    ] = True,
    method: Annotated[
        str, typer.Option("--method", "-m", help="original, fixed, ggr, tree, ophr or all.")
    ] = ALL,
    weight: Annotated[
        str,
        typer.Option(
            "--weight",
            "-w",
            help="What a hit is worth: tokens (characters without --tokenizer), squared (length), "
            "or a provider's price such as claude-sonnet-5.",
        ),
    ] = "tokens",
    tokenizer: Annotated[
        str | None,
        typer.Option(
            help="Count hits in tokens of this tokenizer: demo, a model folder or tokenizer.json.",
        ),
    ] = None,
    prefix: Annotated[
        str, typer.Option(metavar="TEXT|@FILE", help="Text that precedes the fields of every row.")
    ] = "",
    cache_tokens: Annotated[
        int | None, typer.Option(help="Pick the order with the most hits in an LRU cache this big.")
    ] = None,
    requests_per_minute: Annotated[
        float | None, typer.Option(help="Request rate; used with a price as --weight.")
    ] = None,
    seconds: Annotated[float | None, typer.Option(help="Approximate search time of tree.")] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Write the best order to a .parquet, .csv or .json file: row numbers (from 0) "
            "in the order to send, each with its fields in order.",
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the figures as JSON; the order goes to --output.")
    ] = False,
    template: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT|@FILE",
            rich_help_panel=_BATCH,
            help="The question. {fields} stands for the fields of a row; without it they follow.",
        ),
    ] = None,
    system: Annotated[
        str,
        typer.Option(metavar="TEXT|@FILE", rich_help_panel=_BATCH, help="The system text."),
    ] = "",
    batch: Annotated[
        Path | None,
        typer.Option(
            rich_help_panel=_BATCH,
            help="Write the prompts in the best order to a .jsonl file for a provider's batch API. "
            "With --answers: only the rows without an answer.",
        ),
    ] = None,
    form: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=_BATCH,
            help="openai or anthropic. Default: anthropic for names that begin with claude.",
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=_BATCH,
            help="The model's name at the provider. Default: the name of the price.",
        ),
    ] = None,
    max_tokens: Annotated[
        int, typer.Option(rich_help_panel=_BATCH, help="The most tokens of an answer.")
    ] = 1024,
    waves: Annotated[
        int,
        typer.Option(
            rich_help_panel=_BATCH,
            help="Write at most N waves, each to its own file: first one row of each group that "
            "shares a prefix, then the others.",
        ),
    ] = 1,
    answers: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            rich_help_panel=_BATCH,
            help="A result file of the batch, in any order. May be repeated. With --answered.",
        ),
    ] = None,
    answered: Annotated[
        Path | None,
        typer.Option(
            rich_help_panel=_BATCH,
            help="Write the table with the columns answer and error to a .parquet, .csv or .json "
            "file.",
        ),
    ] = None,
) -> None:
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
    if output is not None:
        check_rows(output)
    asked = _template(template, system, prefix)
    told = BatchOptions(
        weight, asked, batch, form, model, max_tokens, waves, answers or (), answered
    )
    settings = _settings(weight, tokenizer, prefix, cache_tokens, requests_per_minute)
    if asked is not None:
        settings["prefix"] = asked.prefix
    settings["bags"] = [split_names(names) for names in bag or ()]
    given = [each for text in fd or () for each in read_dependency(text)]
    methods = methods_of(method)
    with exits_when_interrupted(), errors_console().status("reading") as status:
        kept = None if columns is None else split_names(columns)
        data = read_text(find_file(file), table=table, columns=kept, rows=rows)
        came = told.put_back(data, settings["bags"])
        comparison, written = None, None
        if came is None or batch is not None or output is not None:
            found = [*given, DISCOVER] if discover else given
            comparison = compare(data, methods, found, seconds, status.update, **settings)
            best = comparison.schedules[comparison.best]
            written = told.write(best, came)
            if output is not None:
                write_order(best, comparison.names, output)
    if as_json:
        figured = {} if comparison is None else figures.document(comparison)
        typer.echo(to_json({"file": file, **figured, **document(written, came)}))
    else:
        table_of = {"--table": table, "--columns": columns, "--rows": rows}
        for text in said(written, came, reading(file, table_of)):
            say(text)
        if comparison is not None and written is not None:
            Console(soft_wrap=True).print(figures.in_short(comparison), highlight=False)
        elif comparison is not None:
            _print(comparison, estimated=tokenizer is None)
    if came is not None and came.errors:
        raise typer.Exit(ROWS_LOST)


def _settings(
    weight: str,
    tokenizer: str | None,
    prefix: str,
    cache_tokens: int | None,
    requests_per_minute: float | None,
) -> dict[str, Any]:
    """Settings of `reorder`. Raises ConfigError for those that would do nothing."""
    priced = weight not in WEIGHTS
    if requests_per_minute is not None and not priced:
        raise ConfigError(
            "--requests-per-minute only matters with a price. Give one as --weight, e.g. "
            "claude-sonnet-5."
        )
    if prefix and not priced and tokenizer is None and cache_tokens is None:
        raise ConfigError(
            "--prefix only matters when tokens are counted. Give --tokenizer, --cache-tokens, or a "
            "price as --weight."
        )
    return {
        "weight": weight,
        "tokenizer": None if tokenizer is None else _load_tokenizer(tokenizer),
        "prefix": _text("--prefix", prefix),
        "cache_tokens": cache_tokens,
        "requests_per_minute": requests_per_minute,
    }


def _load_tokenizer(name: str) -> Callable[[list[str]], list[list[int]]]:
    from relquery.backends.tokenizer import load_tokenizer

    return load_tokenizer(name)


def _template(text: str | None, system: str, prefix: str) -> Template | None:
    """The template of prompts, if one is given. Raises ConfigError."""
    if text is None:
        if system:
            raise ConfigError("--system only has an effect with --template and --batch.")
        return None
    if prefix:
        raise ConfigError(
            "--prefix cannot be used with --template, which has the text before the fields. Leave "
            "--prefix out."
        )
    return Template(_text("--template", text), _text("--system", system))


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
    for text in figures.dependency_lines(comparison, best):
        show(text)
    show("")
    console.print(figures.depths_table(best.depths))
