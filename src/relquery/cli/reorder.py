"""`relquery reorder`: orders of one table side by side, prompts in a batch, answers put back."""

from __future__ import annotations

import json
import re
import shlex
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import typer
from rich.console import Console

from relquery.cli.command import argument, command_of, option
from relquery.cli.exits import ROWS_LOST
from relquery.cli.interrupt import exits_when_interrupted
from relquery.cli.orders import Comparison
from relquery.cli.tables import (
    check_output,
    check_rows,
    find_file,
    read_text,
    split_names,
    write_rows,
)
from relquery.cli.terminal import errors_console, say, to_json
from relquery.config import ORDERS, Order
from relquery.errors import ConfigError, PartialResultWarning, unknown
from relquery.reordering.cost.meter import WEIGHTS
from relquery.reordering.dependencies import TWO_WAY, Dependency
from relquery.reordering.encode import encode
from relquery.reordering.prompts.answers import Answers
from relquery.reordering.prompts.batch import Batch
from relquery.reordering.prompts.forms import FormName, find_form
from relquery.reordering.prompts.template import Template
from relquery.reordering.reorder import reorder as reordered
from relquery.reordering.schedule import Schedule

ALL = "all"
_ARROW = re.compile(r'(<->|->)(?=(?:[^"]*"[^"]*")*[^"]*\Z)')  # outside quotes
METHODS: tuple[Order, ...] = ("original", "fixed", "ggr", "tree", "ophr")
OPHR_ROWS = 100
"""Rows of a table that `all` tries `ophr` on: about a minute at worst."""


@dataclass(frozen=True, kw_only=True)
class BatchOptions:
    """Options about prompts and answers."""

    PANEL: ClassVar[str | None] = "Batches: prompts out, answers back"

    template: str | None = option(
        "The question. {fields} stands for the fields of a row; without it they follow.",
        metavar="TEXT|@FILE",
    )
    system: str = option("The system text.", metavar="TEXT|@FILE", default="")
    batch: Path | None = option(
        "Write the prompts in the best order to a .jsonl file for a provider's batch API. With "
        "--answers: only the rows without an answer."
    )
    form: str | None = option(
        "openai or anthropic. Default: anthropic for names that begin with claude."
    )
    model: str | None = option("The model's name at the provider. Default: the name of the price.")
    max_tokens: int = option("The most tokens of an answer.", default=1024)
    waves: int = option(
        "Write at most N waves, each to its own file: first one row of each group that shares a "
        "prefix, then the others.",
        default=1,
    )
    answers: list[Path] | None = option(
        "A result file of the batch, in any order. May be repeated. With --answered.",
        metavar="FILE",
    )
    answered: Path | None = option(
        "Write the table with the columns answer and error to a .parquet, .csv or .json file."
    )

    def check_batch(self, weight: str) -> None:
        """Whether they go together, and files can be written. Raises ConfigError."""
        if self.form is not None:
            find_form(self.form)
        if (self.batch is None) != (self.template is None):
            raise ConfigError(
                "--batch and --template belong together: give the file to write, and the question."
            )
        if self.system and self.template is None:
            raise ConfigError("--system only has an effect with --template and --batch.")
        if bool(self.answers) != (self.answered is not None):
            raise ConfigError(
                "--answers and --answered belong together: give the result files, and the file to "
                "write the table with its answers to."
            )
        if self.batch is not None and self.model is None and weight in WEIGHTS:
            raise ConfigError(
                "--batch needs --model, the provider's name of a model; or its price as --weight, "
                "e.g. claude-sonnet-5."
            )
        if self.batch is not None:
            check_output(self.batch, [".jsonl"], "--batch")
        if self.answered is not None:
            check_rows(self.answered, "--answered")

    def prompts(self) -> Template | None:
        """The template of prompts, if one is given. Raises ConfigError."""
        if self.template is None:
            return None
        return Template(_text("--template", self.template), _text("--system", self.system))

    def write(self, schedule: Schedule, weight: str, came: Answers | None) -> Batch | None:
        """Write the batch file if there is to be one.

        came: answers that are known; only the rows without one are written.
        """
        template = self.prompts()
        if self.batch is None or template is None:
            return None
        of_claude = (self.model or weight).startswith("claude")
        default: FormName = "anthropic" if of_claude else "openai"
        return schedule.write_batch(
            self.batch,
            template,
            default if self.form is None else find_form(self.form).name,
            model=self.model,
            max_tokens=self.max_tokens,
            rows=None if came is None else came.failed.tolist(),
            waves=self.waves,
        )

    def put_back(self, data: pa.Table, bags: Sequence[Sequence[str]]) -> Answers | None:
        """Write the table with its answers if there are results."""
        if self.answered is None:
            return None
        schedule = reordered(data, "original", bags=bags)  # answers do not depend on the order
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PartialResultWarning)  # the caller shows the answers
            came = schedule.read_answers(self.answers or ())
        errors = pa.array([came.errors.get(row) for row in range(len(came))], pa.string())
        for name, column in (("answer", came.values), ("error", errors)):
            data = data.append_column(_free(name, data.column_names), column)
        write_rows(data, self.answered)
        return came


def _free(name: str, taken: Sequence[str]) -> str:
    """A name that no column has: answer, answer_2, ..."""
    names = (name if number == 1 else f"{name}_{number}" for number in range(1, len(taken) + 2))
    return next(each for each in names if each not in taken)


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
class Reorder(BatchOptions):
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

    PANEL: ClassVar[str | None] = None

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
        self.check_batch(self.weight)
        methods, settings = _methods(self.method), self._settings()
        with exits_when_interrupted(), errors_console().status("reading") as status:
            kept = None if self.columns is None else split_names(self.columns)
            data = read_text(find_file(self.file), table=self.table, columns=kept, rows=self.rows)
            came = self.put_back(data, settings["bags"])
            compared, written = None, None
            if came is None or self.batch is not None or self.output is not None:
                compared = self._compare(data, methods, settings, status.update)
                best = compared.schedules[compared.best]
                written = self.write(best, self.weight, came)
                if self.output is not None:
                    write_order(best, compared.names, self.output)
        self._show(compared, written, came)
        if came is not None and came.errors:
            raise typer.Exit(ROWS_LOST)

    def _settings(self) -> dict[str, Any]:
        """Settings of `reorder`. Raises ConfigError for those that would do nothing."""
        priced, template = self.weight not in WEIGHTS, self.prompts()
        if self.requests_per_minute is not None and not priced:
            raise ConfigError(
                "--requests-per-minute only matters with a price. Give one as --weight, e.g. "
                "claude-sonnet-5."
            )
        counts = priced or self.tokenizer is not None or self.cache_tokens is not None
        if self.prefix and template is not None:
            raise ConfigError(
                "--prefix cannot be used with --template, which has the text before the fields. "
                "Leave --prefix out."
            )
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

    def _compare(
        self,
        data: pa.Table,
        methods: Sequence[Order],
        settings: dict[str, Any],
        tell: Callable[[str], None],
    ) -> Comparison:
        """Order the table by each of the methods."""
        columns = encode(data)
        given = [each for text in self.fd or () for each in read_dependency(text)]
        compared = Comparison(columns.names, data.num_rows, {}, {})
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

    def _show(
        self, compared: Comparison | None, written: Batch | None, came: Answers | None
    ) -> None:
        if self.as_json:
            figures = {} if compared is None else compared.document()
            typer.echo(to_json({"file": self.file, **figures, **_document(written, came)}))
            return
        if came is not None:
            remedy = "Write these rows to a batch: repeat the command with --template and --batch."
            say(came.summary(remedy if written is None else "These rows are in the new batch."))
        if written is not None:
            say(str(written))
            say(f"When the results have arrived, run: {self._reading()}")
        if compared is not None:
            is_estimated = self.tokenizer is None
            shown = compared.in_short() if written else compared.in_full(is_estimated=is_estimated)
            console = Console(soft_wrap=True)
            for each in shown:
                console.print(each, markup=False, highlight=False)

    def _reading(self) -> str:
        """The command that puts answers back."""
        parts = {"--table": self.table, "--columns": self.columns, "--rows": self.rows}
        given = [word for name, one in parts.items() if one is not None for word in (name, one)]
        answers = ["--answers", "RESULTS", "--answered", "FILE.csv"]
        return shlex.join(map(str, ["relquery", "reorder", self.file, *given, *answers]))


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
        texts = [json.dumps(one, ensure_ascii=False) for one in lists.to_pylist()]
        lists = pa.array(texts, pa.string())
    write_rows(pa.table({"row": schedule.rows, "fields": lists}), path)


def _document(written: Batch | None, came: Answers | None) -> dict[str, Any]:
    """What was written and read, for JSON."""
    found: dict[str, Any] = {}
    if written is not None:
        found["batch"] = {
            "requests": written.requests,
            "waves": [[str(path) for path in wave] for wave in written.waves],
            "usd": None if written.bill is None else written.bill.usd,
        }
    if came is not None:
        found["answers"] = {
            "rows": len(came),
            "errors": [{"row": row, "error": error} for row, error in came.errors.items()],
            "problems": list(came.problems),
        }
    return found
