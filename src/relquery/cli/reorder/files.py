"""Files that `relquery reorder` writes and reads: orders, batches, tables with answers."""

from __future__ import annotations

import json
import shlex
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import typer

from relquery.cli.terminal.tables import check_output, check_rows, write_rows
from relquery.errors import ConfigError, PartialResultWarning
from relquery.reordering.cost.meter import WEIGHTS
from relquery.reordering.prompts.answers import Answers
from relquery.reordering.prompts.batch import Batch
from relquery.reordering.prompts.forms import FormName, find_form
from relquery.reordering.prompts.template import Template
from relquery.reordering.reorder import reorder
from relquery.reordering.schedule import Schedule


def order_table(schedule: Schedule, names: Sequence[str]) -> pa.Table:
    """`row`: numbers from 0, in the order to send. `fields`: each row's columns, in order."""
    rows, fields = schedule.fields.shape
    flat = pa.array(names, pa.string()).take(pa.array(schedule.fields.reshape(-1)))
    starts = pa.array(np.arange(rows + 1, dtype=np.int64) * fields)
    return pa.table({"row": schedule.rows, "fields": pa.LargeListArray.from_arrays(starts, flat)})


def write_order(schedule: Schedule, names: Sequence[str], path: Path) -> None:
    """Write an order; in CSV, which has no lists, fields are a JSON list."""
    order = order_table(schedule, names)
    if path.suffix.lower() == ".csv":
        fields = [json.dumps(names, ensure_ascii=False) for names in order["fields"].to_pylist()]
        order = order.set_column(1, "fields", pa.array(fields, pa.string()))
    write_rows(order, path)


_CLAUDE = "claude"
JSON_LINES = ".jsonl"


_BATCH = "Batches: prompts out, answers back"


@dataclass(frozen=True, kw_only=True)
class BatchOptions:
    """The options of `relquery reorder` about prompts and answers."""

    weight: Annotated[
        str,
        typer.Option(
            "--weight",
            "-w",
            help="What a hit is worth: tokens (characters without --tokenizer), squared (length), "
            "or a provider's price such as claude-sonnet-5.",
        ),
    ] = "tokens"
    template: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT|@FILE",
            rich_help_panel=_BATCH,
            help="The question. {fields} stands for the fields of a row; without it they follow.",
        ),
    ] = None
    system: Annotated[
        str,
        typer.Option(metavar="TEXT|@FILE", rich_help_panel=_BATCH, help="The system text."),
    ] = ""
    batch: Annotated[
        Path | None,
        typer.Option(
            rich_help_panel=_BATCH,
            help="Write the prompts in the best order to a .jsonl file for a provider's batch API. "
            "With --answers: only the rows without an answer.",
        ),
    ] = None
    form: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=_BATCH,
            help="openai or anthropic. Default: anthropic for names that begin with claude.",
        ),
    ] = None
    model: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=_BATCH,
            help="The model's name at the provider. Default: the name of the price.",
        ),
    ] = None
    max_tokens: Annotated[
        int, typer.Option(rich_help_panel=_BATCH, help="The most tokens of an answer.")
    ] = 1024
    waves: Annotated[
        int,
        typer.Option(
            rich_help_panel=_BATCH,
            help="Write at most N waves, each to its own file: first one row of each group that "
            "shares a prefix, then the others.",
        ),
    ] = 1
    answers: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            rich_help_panel=_BATCH,
            help="A result file of the batch, in any order. May be repeated. With --answered.",
        ),
    ] = None
    answered: Annotated[
        Path | None,
        typer.Option(
            rich_help_panel=_BATCH,
            help="Write the table with the columns answer and error to a .parquet, .csv or .json "
            "file.",
        ),
    ] = None

    def check(self) -> None:
        """Whether they go together, and files can be written. Raises ConfigError."""
        if self.form is not None:
            find_form(self.form)
        if (self.batch is None) != (self.template is None):
            raise ConfigError(
                "--batch and --template belong together: give the file to write, and the question."
            )
        if bool(self.answers) != (self.answered is not None):
            raise ConfigError(
                "--answers and --answered belong together: give the result files, and the file to "
                "write the table with its answers to."
            )
        if self.batch is not None and self.model is None and self.weight in WEIGHTS:
            raise ConfigError(
                "--batch needs --model, the provider's name of a model; or its price as --weight, "
                "e.g. claude-sonnet-5."
            )
        if self.batch is not None:
            check_output(self.batch, [JSON_LINES], "--batch")
        if self.answered is not None:
            check_rows(self.answered, "--answered")

    def write(
        self, schedule: Schedule, template: Template | None, came: Answers | None
    ) -> Batch | None:
        """Write the batch file if there is to be one.

        came: answers that are known; only the rows without one are written.
        """
        if self.batch is None or template is None:
            return None
        of_claude = (self.model or self.weight).startswith(_CLAUDE)
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

    def put_back(self, table: pa.Table, bags: Sequence[Sequence[str]]) -> Answers | None:
        """Write the table with its answers if there are results."""
        if self.answered is None:
            return None
        schedule = reorder(table, "original", bags=bags)  # answers do not depend on the order
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PartialResultWarning)  # the caller shows the answers
            answers = schedule.read_answers(self.answers or ())
        errors = pa.array([answers.errors.get(row) for row in range(len(answers))], pa.string())
        for name, column in (("answer", answers.values), ("error", errors)):
            table = table.append_column(_free(name, table.column_names), column)
        write_rows(table, self.answered)
        return answers


def _free(name: str, taken: Sequence[str]) -> str:
    """A name that no column has: answer, answer_2, ..."""
    names = (name if number == 1 else f"{name}_{number}" for number in range(1, len(taken) + 2))
    return next(each for each in names if each not in taken)


def document(written: Batch | None, came: Answers | None) -> dict[str, Any]:
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


def said(written: Batch | None, came: Answers | None, again: str) -> Iterator[str]:
    """What was written and read, for a person. again: the command that reads the answers."""
    if came is not None:
        remedy = "Write these rows to a batch: repeat the command with --template and --batch."
        yield came.summary(remedy if written is None else "These rows are in the new batch.")
    if written is None:
        return
    count = "1 request" if written.requests == 1 else f"{written.requests:,} requests"
    yield f"{count} in {', '.join(map(str, written.paths))}."
    if len(written.waves) > 1:
        yield "Send each wave when the one before it has been answered."
    if written.bill is not None:
        yield written.cost
    yield f"When the results have arrived, run: {again}"


def reading(file: str, options: Mapping[str, str | int | None]) -> str:
    """The command that puts answers back. options: which part of the file is the table."""
    given = [part for name, value in options.items() if value is not None for part in (name, value)]
    words = ["relquery", "reorder", file, *given, "--answers", "RESULTS", "--answered", "FILE.csv"]
    return shlex.join(map(str, words))
