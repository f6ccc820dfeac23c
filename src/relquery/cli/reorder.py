"""`relquery reorder`: orders of one table side by side, as tables for a terminal, and as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import typer
from rich.console import Console

from relquery.cli.command import argument, command_of, option
from relquery.cli.interrupt import exits_when_interrupted
from relquery.cli.tables import (
    check_rows,
    find_file,
    read_text,
    split_names,
    write_rows,
)
from relquery.cli.terminal import by_rows, errors_console, table, to_json
from relquery.config import ORDERS, Order
from relquery.errors import ConfigError, unknown
from relquery.reordering.cost.meter import WEIGHTS
from relquery.reordering.dependencies import TWO_WAY, Dependency
from relquery.reordering.encode import encode
from relquery.reordering.reorder import reorder as reordered
from relquery.reordering.schedule import Schedule, ScheduleReport

_DEPENDENCIES = 12
"""Those that are shown."""


@dataclass(frozen=True, eq=False)
class OrderComparison:
    """Figures of several methods of ordering, side by side."""

    names: tuple[str, ...]
    """Of the columns."""
    rows: int
    schedules: dict[Order, Schedule]
    """By method."""
    left_out: dict[Order, str]
    """Why other methods are not there."""

    @cached_property
    def best(self) -> Order:
        """The cheapest if there is a price, then the one that hits most; the first of equals."""
        return max(self.schedules, key=lambda method: _merit(self.schedules[method].report))

    @property
    def _reports(self) -> list[ScheduleReport]:
        return [schedule.report for schedule in self.schedules.values()]

    @property
    def _best(self) -> ScheduleReport:
        return self.schedules[self.best].report

    def shown(self, *, is_estimated: bool) -> Iterator[object]:
        """Tables of what each method reaches, and why one is the best.

        is_estimated: whether tokens are.
        """
        best = self._best
        yield _by_method(self._reports, _figures)
        yield ""
        if best.tokens is not None:
            yield _by_method(self._reports, _token_figures)
            yield f"{_tokens_note(best, is_estimated=is_estimated)}\n"
        if len(self.schedules) > 1:
            yield f"Best: {best.method} ({self._criterion}), weight {best.weight}."
        yield from self._too_short()
        for method, reason in self.left_out.items():
            yield f"{method} was skipped. {reason}"
        known = best.dependencies
        if known:
            yield "1 dependency:" if len(known) == 1 else f"{len(known)} dependencies:"
        for dependency in known[:_DEPENDENCIES]:
            yield f"  {dependency}"
        if len(known) > _DEPENDENCIES:
            yield f"  and {len(known) - _DEPENDENCIES} more; --json lists all"

    @property
    def _criterion(self) -> str:
        """Why the best method was chosen."""
        best = self._best
        if best.bill is not None and self._is_cached:
            return "cheapest"
        if best.tokens is not None:
            return "most tokens shared" if best.tokens.lru is None else "most hits under LRU"
        return "highest hit rate"

    @property
    def _is_cached(self) -> bool:
        """Whether a provider's cache takes part in any bill."""
        return any(
            report.bill is not None and report.bill.read + report.bill.written
            for report in self._reports
        )

    def _too_short(self) -> Iterator[str]:
        """Why nothing is cached, if there is a price and nothing is."""
        bill = self._best.bill
        if bill is not None and not self._is_cached:
            yield (
                f"No shared prefix reaches the {bill.price.minimum:,} tokens that "
                f"{bill.price.name} caches at least, so every order costs the same."
            )

    def document(self) -> dict[str, Any]:
        """All figures, for JSON."""
        return {
            "rows": self.rows,
            "columns": list(self.names),
            "weight": self._best.weight,
            "best": self.best,
            "methods": list(map(_method, self._reports)),
            "left_out": dict(self.left_out),
            "dependencies": [asdict(dependency) for dependency in self._best.dependencies],
        }


def _merit(report: ScheduleReport) -> tuple[float, ...]:
    money = () if report.bill is None else (-report.bill.usd,)
    hits = report.tokens
    tokens = () if hits is None else (hits.lru or 0, hits.unlimited)
    return (*money, *tokens, report.phr)


def _by_method(
    reports: Sequence[ScheduleReport], figures: Callable[[ScheduleReport], dict[str, str]]
) -> object:
    """A table with a row per method."""
    columns = by_rows({"method": str(report.method), **figures(report)} for report in reports)
    return table(columns, words=("method",), lines=True)


def _figures(report: ScheduleReport) -> dict[str, str]:
    """What a method reaches in characters."""
    return {
        "seconds": f"{report.seconds:.3f}",
        "PHC": f"{report.phc:,}",
        "hit rate": f"{report.phr:.1%}",
    }


def _token_figures(report: ScheduleReport) -> dict[str, str]:
    """What a method reaches in tokens, and in money where there is a price."""
    cells: dict[str, str] = {}
    if (hits := report.tokens) is not None:
        cells["tokens"] = f"{hits.tokens:,}"
        shares = {"previous": hits.previous, "any": hits.unlimited, "LRU": hits.lru}
        cells |= {name: f"{hits.rate(n):.1%}" for name, n in shares.items() if n is not None}
    if (bill := report.bill) is not None:
        cells |= {"USD": f"{bill.usd:.4g}", "saved": f"{bill.savings:.1%}"}
    return cells


def _tokens_note(report: ScheduleReport, *, is_estimated: bool) -> str:
    """What the columns of tokens mean."""
    hits, lru = report.tokens, ""
    if hits is not None and hits.lru is not None:
        lru = f"; LRU: by a cache of {hits.blocks:,} blocks of {hits.block_size} tokens"
    guess = (
        " Tokens are estimated from words; --tokenizer counts real ones." if is_estimated else ""
    )
    return (
        "Tokens that are cached if a prompt reuses the previous one (previous) or any earlier one "
        f"(any){lru}.{guess}"
    )


def _method(report: ScheduleReport) -> dict[str, Any]:
    bill = report.bill
    return {
        "method": report.method,
        "seconds": report.seconds,
        "phc": report.phc,
        "hit_rate": report.phr,
        "tokens": None if report.tokens is None else asdict(report.tokens),
        "bill": bill
        and {
            "price": bill.price.name,
            "price_date": bill.price.date,
            **{name: getattr(bill, name) for name in _OF_BILL},
        },
        "depths": [asdict(depth) for depth in report.depths],
    }


_OF_BILL = ("uncached", "written", "read", "usd", "usd_without_cache", "savings")


ALL = "all"
_ARROW = re.compile(r'(<->|->)(?=(?:[^"]*"[^"]*")*[^"]*\Z)')  # outside quotes
METHODS: tuple[Order, ...] = ("original", "fixed", "ggr", "tree", "ophr")
OPHR_ROWS = 100
"""Rows of a table that `all` tries `ophr` on: about a minute at worst."""


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


@dataclass(frozen=True, kw_only=True)
class Reorder:
    """Order a table so that prompts share prefixes, and show what each method achieves.

    A row becomes a prompt with one line "column: value" per field. Put column names that contain
    a comma in double quotes: --columns 'id,"city, state"'.

    [bold]Examples[/bold]

    relquery reorder demo:movies

    relquery reorder reviews.csv --fd 'id, name' --fd 'city -> state' --method tree -o order.csv

    relquery reorder passages.parquet --bag p1,p2,p3 --tokenizer demo --cache-tokens 65536

    relquery reorder reviews.csv --weight claude-sonnet-5 --requests-per-minute 600
    """

    file: str = argument("A CSV, Parquet, JSON or DuckDB file, or a demo table: demo:movies.")
    table: str | None = option("Which table of a DuckDB file.", "--table", "-t")
    columns: str | None = option("Only these columns.", "--columns", "-c", metavar="A,B,...")
    rows: int | None = option("Use only the first N rows.", min=0)
    bag: list[str] | None = option(
        "Columns whose values are interchangeable, such as passages. May be repeated.",
        metavar="A,B,...",
    )
    fd: list[str] | None = option(
        "'a -> b', 'a, b -> c', or 'a, b' if each determines the other. May be repeated.",
        metavar="DEPENDENCY",
    )
    method: str = option("original, fixed, ggr, tree, ophr or all.", "--method", "-m", default=ALL)
    weight: str = option(
        "What a hit is worth: tokens (characters without --tokenizer), squared (length), or a "
        "provider's price such as claude-sonnet-5.",
        "--weight",
        "-w",
        default="tokens",
    )
    tokenizer: str | None = option(
        "Count hits in tokens of this tokenizer: demo, a model folder or tokenizer.json."
    )
    prefix: str = option(
        "Text that precedes the fields of every row.", metavar="TEXT|@FILE", default=""
    )
    cache_tokens: int | None = option("Pick the order with the most hits in an LRU cache this big.")
    requests_per_minute: float | None = option("Request rate; used with a price as --weight.")
    seconds: float | None = option("Approximate search time of tree.")
    output: Path | None = option(
        "Write the best order to a .parquet, .csv or .json file: row numbers (from 0) in the order "
        "to send, each with its fields in order.",
        "--output",
        "-o",
    )
    as_json: bool = option(
        "Print the figures as JSON; the order goes to --output.", "--json", default=False
    )

    def __call__(self) -> None:
        """Run it."""
        if self.output is not None:
            check_rows(self.output)
        methods, settings = _methods(self.method), self._settings()
        with exits_when_interrupted(), errors_console().status("reading") as status:
            kept = None if self.columns is None else split_names(self.columns)
            data = read_text(find_file(self.file), table=self.table, columns=kept, rows=self.rows)
            compared = self._compare(data, methods, settings, status.update)
            if self.output is not None:
                write_order(compared.schedules[compared.best], compared.names, self.output)
        if self.as_json:
            typer.echo(to_json({"file": self.file, **compared.document()}))
            return
        console = Console(soft_wrap=True)
        for each in compared.shown(is_estimated=self.tokenizer is None):
            console.print(each, markup=False, highlight=False)

    def _settings(self) -> dict[str, Any]:
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
        return {
            "weight": self.weight,
            "tokenizer": None if self.tokenizer is None else _load_tokenizer(self.tokenizer),
            "prefix": _text("--prefix", self.prefix),
            "cache_tokens": self.cache_tokens,
            "requests_per_minute": self.requests_per_minute,
            "bags": [split_names(names) for names in self.bag or ()],
        }

    def _compare(
        self,
        data: pa.Table,
        methods: Sequence[Order],
        settings: dict[str, Any],
        tell: Callable[[str], None],
    ) -> OrderComparison:
        """Order the table by each of the methods."""
        columns = encode(data)
        given = [each for text in self.fd or () for each in read_dependency(text)]
        compared = OrderComparison(columns.names, data.num_rows, {}, {})
        for method in methods:
            tell(method)
            options = {**settings, "dependencies": given}
            if self.seconds is not None and (method == "tree" or len(methods) == 1):
                options["seconds"] = self.seconds
            try:
                if len(methods) > 1:
                    _check_size(method, data.num_rows)
                compared.schedules[method] = reordered(columns, method, **options)
            except ConfigError as error:
                if method != "ophr" or len(methods) == 1:
                    raise
                compared.left_out[method] = str(error)
        return compared


reorder = command_of(Reorder)


def read_dependency(text: str) -> list[str | Sequence[str] | Dependency]:
    """What `reorder` takes as dependencies for `a, b`, `a -> b` or `a <-> b`."""
    if '"' not in text:
        return [text]
    left, *rest = _ARROW.split(text, maxsplit=1)
    if not rest:
        return [split_names(left)]
    determinants, dependents = tuple(split_names(left)), tuple(split_names(rest[1]))
    there = Dependency(determinants, dependents)
    return [there, Dependency(dependents, determinants)] if rest[0] == TWO_WAY else [there]


def _methods(name: str) -> tuple[Order, ...]:
    """`all`, or one method. Raises ConfigError."""
    if name != ALL and name not in ORDERS:
        raise ConfigError(unknown("method", name, [ALL, *METHODS]))
    return tuple(method for method in METHODS if name in (ALL, method))


def _check_size(method: Order, rows: int) -> None:
    if method == "ophr" and rows > OPHR_ROWS:
        raise ConfigError(
            f"The table has {rows:,} rows; with --method all it runs on at most {OPHR_ROWS}. "
            "Give --rows, or --method ophr."
        )


def _load_tokenizer(name: str) -> Callable[[list[str]], list[list[int]]]:
    from relquery.backends.tokenizer import load_tokenizer

    return load_tokenizer(name)


def write_order(schedule: Schedule, names: Sequence[str], path: Path) -> None:
    """Write `row`, numbers from 0 in the order to send, and `fields`, each row's columns in order.

    In CSV, which has no lists, fields are a JSON list.
    """
    rows, fields = schedule.fields.shape
    flat = pa.array(names, pa.string()).take(pa.array(schedule.fields.reshape(-1)))
    lists = pa.LargeListArray.from_arrays(np.arange(rows + 1, dtype=np.int64) * fields, flat)
    if path.suffix.lower() == ".csv":
        texts = [json.dumps(order, ensure_ascii=False) for order in lists.to_pylist()]
        lists = pa.array(texts, pa.string())
    write_rows(pa.table({"row": schedule.rows, "fields": lists}), path)
