"""An order in which to send a table, and what it achieves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from relquery.arrays import Int64s
from relquery.config import Order
from relquery.errors import ConfigError
from relquery.prices.price import Price
from relquery.reordering.cost.billing import Bill
from relquery.reordering.cost.measure import Depth, Fields, HitReport
from relquery.reordering.dependencies import Dependency
from relquery.reordering.prompts.answers import Answers, read_answers
from relquery.reordering.prompts.batch import Batch, batch_path, chosen, result_paths, write_batch
from relquery.reordering.prompts.forms import FormName, find_form, settings_of
from relquery.reordering.prompts.prompts import Prompts, TableSource, Template, price_of, prompts
from relquery.reordering.prompts.waves import in_waves

_SHOWN = 5  # row numbers in a summary


@dataclass(frozen=True, slots=True)
class ScheduleReport:
    """The figures that a solver achieved."""

    method: Order
    weight: str
    """The weight that it maximised."""
    seconds: float
    """Solving time, without encoding the table."""
    phc: int
    """Prefix hit count in characters; see reordering.cost.measure."""
    phr: float
    """Prefix hit rate in characters, 0 to 1; see reordering.cost.measure."""
    depths: tuple[Depth, ...]
    """Hits at each position in characters; see reordering.cost.measure."""
    dependencies: tuple[Dependency, ...] = ()
    """The dependencies that were given."""
    tokens: HitReport | None = None
    """Hits on token ids, if a tokenizer, a price or a cache size was given."""
    bill: Bill | None = None
    """What the provider charges, if a price was given."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Schedule:
    """An order in which to send a table."""

    rows: Int64s
    """(n,), row ids in the order to send."""
    fields: Fields
    """(n, m), at position i the column ids of row `rows[i]` in the order to send."""
    report: ScheduleReport
    source: TableSource | None = None
    """The table; None for an order that was not made by `reorder`, which has no prompts."""

    def __repr__(self) -> str:
        rows, fields = self.fields.shape
        report = self.report
        return (
            f"<Schedule: {_count(rows, 'row')} of {_count(fields, 'field')}, {report.method}, "
            f"hit rate {report.phr:.1%}>"
        )

    def __str__(self) -> str:
        rows, fields = self.fields.shape
        report, first = self.report, ", ".join(map(str, self.rows[:_SHOWN].tolist()))
        lines = [
            f"{_count(rows, 'row')} of {_count(fields, 'field')}, ordered by {report.method} in "
            f"{report.seconds:.3f} s",
            f"Row numbers: {first}{', ...' if rows > _SHOWN else ''}" if rows else "",
            f"Hit rate in characters: {report.phr:.1%}",
            "" if report.tokens is None else str(report.tokens),
            "" if report.bill is None else _input_cost(report.bill),
        ]
        return "\n".join(filter(None, lines))

    def part(self, places: Int64s) -> Schedule:
        """Some of the rows, by their place in the order."""
        return replace(self, rows=self.rows[places], fields=self.fields[places])

    def prompts(self, template: str | Template, *, price: str | Price | None = None) -> Prompts:
        """The prompts in the order to send: a sequence that builds each prompt when it is read.

        template: the question, with `{fields}` where the fields go; see rq.Template. price: the
        price for which breakpoints are chosen; default: the weight of `reorder`, if it is a price.

        Raises ConfigError.
        """
        source = self._source()
        asked = price_of(price, source, None)
        return prompts(source, Template.of(template), self.rows, self.fields, asked)

    def waves(
        self,
        template: str | Template,
        most: int | None = None,
        *,
        price: str | Price | None = None,
        minimum: int | None = None,
    ) -> Sequence[Prompts]:
        """The prompts in waves: the first of each group that shares a prefix, then the others.

        A provider can read a prefix from its cache once it has begun to respond to the request
        that wrote the prefix. Send the requests of a wave together, wait until the responses
        begin, then send the next wave.

        most: the highest number of waves. With 2, the first request of each group is in the first
        wave and the others are in the second. Groups inside groups need more waves. Default: the
        fewest waves that read at least 99% of the tokens that would be read if requests were sent
        one after the other. minimum: tokens of the shortest prefix that is worth a wave; default:
        the shortest prefix that the provider caches. template, price: see `prompts`.

        Raises ConfigError.
        """
        source = self._source()
        asked, made = price_of(price, source, None), Template.of(template)
        return in_waves(source, made, self.rows, self.fields, asked, most, minimum)[1]

    def write_batch(
        self,
        path: str | Path,
        template: str | Template,
        form: FormName,
        *,
        model: str | None = None,
        max_tokens: int = 1024,
        price: str | Price | None = None,
        rows: Iterable[int] | None = None,
        waves: int = 1,
        ttl: str = "5m",
        **options: Any,
    ) -> Batch:
        """Write the prompts as JSON Lines for a provider's batch API.

        path: the file. Requests beyond the provider's limits for one file go to several files:
            batch-1.jsonl, batch-2.jsonl.
        form: "openai" (Batch API, chat completions) or "anthropic" (Message Batches).
        model: its name at the provider; default: the name of the price.
        price: decides which prefixes are marked. They end where fields end. Default: the price of
            the model if it is known, or the weight of `reorder`. Marks are `cache_control` for
            Anthropic, and `prompt_cache_breakpoint` for models of OpenAI whose price has
            breakpoints.
        rows: only these rows of the table, such as `answers.failed`.
        waves: at most so many waves, each in its own files: batch-wave1.jsonl. See `waves`.
        ttl: how long Anthropic keeps marked prefixes, "5m" or "1h". Writing for an hour costs twice
            the input price, which the choice of marks considers.
        options: further fields of each request, by the names that the provider's API takes, such
            as temperature or prompt_cache_key. extra_body: a dict of fields whose names are not
            checked, for other servers and for what is newer than relquery.

        Raises ConfigError for unknown options and for settings that contradict each other, before
        anything is written.
        """
        source, made = self._source(), find_form(form)
        file = batch_path(path, template)
        asked = price_of(price, source, model)
        asked, settings = settings_of(made, asked, model, max_tokens, ttl, options)
        sent = self if rows is None else self.part(chosen(self.rows, rows, source.count))
        return write_batch(
            source,
            sent.rows,
            sent.fields,
            file,
            Template.of(template),
            made,
            asked,
            settings,
            waves,
        )

    def read_answers(self, paths: str | Path | Iterable[str | Path]) -> Answers:
        """The answers in result files of batches that `write_batch` wrote, in the table's order.

        paths: files of either form, in any order: outputs and errors of all parts, all waves, and
        rows that were sent again. Every row gets an answer or an error. An answer that was cut off
        is an error. So is one to a row whose cells or columns have changed since.

        Warns with PartialResultWarning about rows without an answer, rows with several, and lines
        that belong to no row. Raises TableError for a file that cannot be read or holds
        requests, and ConfigError for what is not a file.
        """
        return read_answers(self._source(), result_paths(paths))

    def _source(self) -> TableSource:
        if self.source is None:
            raise ConfigError(
                "This schedule does not hold the table's texts. Make it with rq.reorder(table)."
            )
        return self.source


def _count(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _input_cost(bill: Bill) -> str:
    return (
        f"Input costs {bill.usd:.4g} USD with {bill.price.name}, {bill.usd_without_cache:.4g} "
        "without a cache"
    )
