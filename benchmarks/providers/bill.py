"""What relquery's order and marks cost beside the table's order with automatic caching."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.harness import Figure, Say, Settings
from benchmarks.markdown import table as markdown
from benchmarks.parts import Part
from benchmarks.providers.calls import prompts_of
from benchmarks.providers.sending import Pace, bill, requests_of
from benchmarks.providers.sizes import choose
from benchmarks.reorder.prices import REPEATS, repeat
from benchmarks.reorder.tables import TABLES, read
from benchmarks.reorder.tokens import llama3
from benchmarks.standin.billing import Account, Totals
from benchmarks.standin.prompt import Counter, Encode, pieces
from benchmarks.standin.rules import RULES
from benchmarks.templates import template
from relquery.demo.files import TABLES as BUNDLED
from relquery.demo.files import table_path
from relquery.prompt import Prompt

WORDS = template("providers")
MODEL = "claude-sonnet-5"
"""Whose rules the goals are for."""
LEFT = "movies, five times"


@dataclass(frozen=True, slots=True)
class Row:
    """The bills of a table under one model's rules, in USD.

    ours: as relquery sends them. automatic, unmarked: in the table's order, with automatic caching
    and with no mark at all.
    """

    table: str
    model: str
    calls: int
    tokens: int
    ours: Totals
    automatic: Totals
    unmarked: Totals

    @property
    def ratio(self) -> float:
        """Our bill as a share of the table's order with automatic caching."""
        return self.ours.usd / self.automatic.usd

    @property
    def to_unmarked(self) -> float:
        """Our bill as a share of the table's order without marks."""
        return self.ours.usd / self.unmarked.usd


@dataclass(slots=True)
class Bills(Part):
    """The part."""

    name = "bill"
    title = "Bills"
    rows: list[Row] = field(default_factory=list)
    counted: str = ""
    real: int = 0

    def measure(self, settings: Settings, say: Say) -> Iterator[Figure]:
        """See Part."""
        size = choose(settings.quick)
        self.real = size.real
        encode, self.counted = provider_tokens(settings.data)
        counter = Counter(encode)
        for name, rows in tables(settings.data, size.rows, size.real):
            as_written = prompts_of(rows, "original")
            for model in RULES if name == LEFT else (MODEL,):
                own = prompts_of(rows, "tree", model)
                self.rows.append(compare(name, model, own, as_written, counter))
                row = self.rows[-1]
                say(
                    f"{name}, {model}: {row.ours.usd:.4g} USD, {row.ratio:.3f} of automatic, "
                    f"{row.to_unmarked:.3f} of unmarked"
                )
        yield from self._figures()

    def _figures(self) -> Iterator[Figure]:
        for row in self.rows:
            if row.table == LEFT and row.model == MODEL:
                note = f"{row.ours.usd:.4g} USD against {row.automatic.usd:.4g}"
                yield Figure("bill_movies", row.ratio, 0.45, False, note)
        if not any(row.table == LEFT for row in self.rows):
            yield Figure("bill_movies", None, 0.45, False, "movies.parquet is missing")
        worst = max(self.rows, key=lambda row: max(row.ratio, row.to_unmarked))
        value = max(worst.ratio, worst.to_unmarked)
        note = f"the worst is {worst.table} by the rules of {worst.model}"
        yield Figure("bill_worst", value, 1.0, False, note, any_size=True)

    def render(self, drawn: Collection[str]) -> Iterator[str]:
        """See Part."""
        yield WORDS.block("bill", model=MODEL, counted=self.counted, times=REPEATS, real=self.real)
        names = ("table", "model", "calls", "tokens a call", "ours, USD", "automatic", "unmarked")
        yield from markdown((*names, "read", "ours / automatic"), map(_cells, self.rows))


def _cells(row: Row) -> Sequence[str]:
    return (
        row.table,
        row.model,
        f"{row.calls:,}",
        f"{row.tokens / row.calls:,.0f}",
        f"{row.ours.usd:.4g}",
        f"{row.automatic.usd:.4g}",
        f"{row.unmarked.usd:.4g}",
        f"{row.ours.read / row.ours.input:.0%}",
        f"{row.ratio:.3f}",
    )


def provider_tokens(data: Path) -> tuple[Encode, str]:
    """(the provider's tokenizer, its name): Llama 3's where its ranks are."""
    encode = llama3(data / "tokenizers" / "llama3_tokenizer.model")
    if encode is None:
        return pieces, "pieces of words"
    return lambda text: list(encode([text])[0]), "Llama 3's tokenizer"


def tables(data: Path, rows: int, real: int) -> Iterator[tuple[str, pa.Table]]:
    """Movies with each value five times, then all tables as they are, up to `real` rows."""
    for each in TABLES:
        if each.name == "movies" and (movies := read(each, data)) is not None:
            yield LEFT, repeat(movies.slice(0, rows), REPEATS)
    for name in BUNDLED:
        yield f"demo:{name}", pq.read_table(table_path(name)).slice(0, real)
    for each in TABLES:
        if (found := read(each, data)) is not None:
            yield each.name, found.slice(0, real)


def compare(
    name: str, model: str, own: Sequence[Prompt], others: Sequence[Prompt], counter: Counter
) -> Row:
    """The bills of one table. own: what relquery sends. others: those of the table's order."""
    pace = Pace()
    ours = bill(Account(counter), model, requests_of(own, model), pace)
    automatic = bill(Account(counter), model, requests_of(others, model, "automatic"), pace)
    unmarked = bill(Account(counter), model, requests_of(others, model, "none"), pace)
    return Row(name, model, len(own), ours.input, ours, automatic, unmarked)
