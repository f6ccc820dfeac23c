"""An order in which to send a table, and what it achieves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from relquery.arrays import Int64s
from relquery.config import Order
from relquery.errors import ConfigError
from relquery.table.cost.billing import Bill
from relquery.table.cost.hits import HitReport
from relquery.table.cost.price import Price
from relquery.table.dependencies.dependencies import Dependency
from relquery.table.measure import Depth, Fields
from relquery.table.prompts.answers import Answers, read_answers
from relquery.table.prompts.batch import Batch, chosen, write_batch
from relquery.table.prompts.forms import FormName, find_form, settings_of
from relquery.table.prompts.marks import price_of, prompts
from relquery.table.prompts.prompts import Prompts
from relquery.table.prompts.source import Source
from relquery.table.prompts.template import Template
from relquery.table.prompts.waves import in_waves


@dataclass(frozen=True, slots=True)
class Report:
    """What a solver achieved.

    weight: what was maximised. seconds: solving time, without encoding the table. phc, phr, depths:
    see relquery.table.measure; counted in characters. dependencies: given and discovered ones.
    tokens: hits on token ids, if a tokenizer, a price or a cache size was given. bill: what the
    provider charges, if a price was given.
    """

    method: Order
    weight: str
    seconds: float
    phc: int
    phr: float
    depths: tuple[Depth, ...]
    dependencies: tuple[Dependency, ...] = ()
    tokens: HitReport | None = None
    bill: Bill | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """An order in which to send a table.

    rows: (n,), row ids in the order to send.
    fields: (n, m), at position i the column ids of row `rows[i]` in the order to send.
    source: the table; None for an order that was not made by `reorder`, which has no prompts.
    """

    rows: Int64s
    fields: Fields
    report: Report
    source: Source | None = field(default=None, repr=False)

    def part(self, places: Int64s) -> Schedule:
        """Some of the rows, by their place in the order."""
        return replace(self, rows=self.rows[places], fields=self.fields[places])

    def prompts(self, template: str | Template, *, price: str | Price | None = None) -> Prompts:
        """The prompts in the order to send: a sequence that builds each one when it is read.

        template: the question, with `{fields}` where the fields go; see rq.Template. price: what
        the breakpoints are for; default: the price that was the weight of `reorder`.

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

        A provider can read a prefix from its cache once the response to the request that wrote it
        has begun. Send the requests of a wave together, and the next wave after that.

        most: the most waves. With 2, the first of each group goes first, if its group is worth it,
        and the others follow. Groups inside groups need more. Default: as few as read 99% of the
        tokens that are read if requests are sent one after the other. minimum: tokens of the
        shortest prefix that is worth a wave; default: the shortest that the price's provider
        caches. template, price: see `prompts`.

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

        path: the file. Requests that exceed the provider's limits for one file go to several:
            batch-1.jsonl, batch-2.jsonl.
        form: "openai" (Batch API, chat completions) or "anthropic" (Message Batches).
        model: the provider's name; default: the name of the price.
        price: decides which prefixes to mark, where fields end. Default: that of the model if it is
            known, or the weight of `reorder`. Marks are `cache_control` for Anthropic, and
            `prompt_cache_breakpoint` for OpenAI's models whose price has breakpoints.
        rows: only these rows of the table, such as `answers.failed`.
        waves: the most waves, each in files of its own: batch-wave1.jsonl. See `waves`.
        ttl: how long Anthropic keeps what is marked, "5m" or "1h". Writing for an hour costs twice
            the input price, which the choice of marks considers.
        options: further parameters of each request, such as temperature or prompt_cache_key.

        Raises ConfigError for settings that contradict each other, before anything is written.
        """
        source, made = self._source(), find_form(form)
        asked = price_of(price, source, model)
        asked, settings = settings_of(made, asked, model, max_tokens, ttl, options)
        sent = self if rows is None else self.part(chosen(self.rows, rows, source.count))
        return write_batch(
            source,
            sent.rows,
            sent.fields,
            Path(path),
            Template.of(template),
            made,
            asked,
            settings,
            waves,
        )

    def read_answers(self, paths: str | Path | Iterable[str | Path]) -> Answers:
        """The answers in result files of batches that `write_batch` wrote, in the table's order.

        paths: files of either form, in any order: outputs and errors, of all parts, waves and
        repetitions. Every row has an answer or an error; one that was cut off is an error.

        Warns with PartialResultWarning of rows without an answer, of rows with several, and of
        lines that belong to no row. Raises TableError for a file that cannot be read.
        """
        given = [paths] if isinstance(paths, str | Path) else paths
        return read_answers(self._source(), [Path(path) for path in given])

    def _source(self) -> Source:
        if self.source is None:
            raise ConfigError(
                "This schedule does not hold the table's texts. Make it with rq.reorder(table)."
            )
        return self.source
