"""Writing prompts as files for a provider's batch API."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from operator import index
from pathlib import Path
from typing import Any

import numpy as np

from relquery.arrays import Int64s
from relquery.errors import ConfigError
from relquery.prices.price import Price
from relquery.reordering.cost.billing import Bill
from relquery.reordering.cost.measure import Fields
from relquery.reordering.prompts.files import BatchFiles
from relquery.reordering.prompts.forms import Form, Settings
from relquery.reordering.prompts.marks import prompts
from relquery.reordering.prompts.prompts import Prompts
from relquery.reordering.prompts.source import Source
from relquery.reordering.prompts.template import Template
from relquery.reordering.prompts.waves import in_waves

# Some readers also split lines at these. JSON has them only inside strings.
_LINE_ENDS = {ord(end): f"\\u{ord(end):04x}" for end in "\u0085\u2028\u2029"}


@dataclass(frozen=True, slots=True, repr=False)
class Batch:
    """The files of a batch.

    waves: the files of each wave; send a wave when the one before it has been answered. requests:
    how many there are in all. bill: what the provider charges for the prompts at list prices if
    they are sent one after the other (batch APIs charge half); None if `unbilled` says why.
    """

    waves: tuple[tuple[Path, ...], ...]
    requests: int
    bill: Bill | None
    unbilled: str = ""

    @property
    def paths(self) -> tuple[Path, ...]:
        """All files, in the order to send."""
        return tuple(path for wave in self.waves for path in wave)

    def __str__(self) -> str:
        count = "1 request" if self.requests == 1 else f"{self.requests:,} requests"
        lines = [f"{count} in {', '.join(map(str, self.paths))}"]
        if len(self.waves) > 1:
            lines.append("Send each wave when the one before it has been answered.")
        return "\n".join([*lines, self.cost])

    @property
    def cost(self) -> str:
        """The bill in a sentence, or why there is none."""
        if self.bill is None:
            return f"No bill: {self.unbilled}" if self.unbilled else "No bill."
        return (
            f"Input costs {self.bill.usd:.4g} USD at list prices if requests are sent one after "
            "the other. Batch APIs charge half."
        )

    def __repr__(self) -> str:
        bill = "no bill" if self.bill is None else f"{self.bill.usd:.4g} USD"
        files = "1 file" if len(self.paths) == 1 else f"{len(self.paths):,} files"
        return f"<Batch: {self.requests:,} requests in {files}, {bill}>"


def write_batch(
    source: Source,
    rows: Int64s,
    fields: Fields,
    path: Path,
    template: Template,
    form: Form,
    price: Price | None,
    settings: Settings,
    waves: int,
) -> Batch:
    """Write prompts, one per line, each wave to its own files; see BatchFiles for their names.

    Raises ConfigError for a prompt that is too long for a file, OSError if writing fails. No file
    is written or replaced then.
    """
    if waves == 1:
        sent = prompts(source, template, rows, fields, price)
        parts = [sent]
    else:
        sent, parts = in_waves(source, template, rows, fields, price, waves)
    with BatchFiles(path, form.requests, form.size) as files:
        for wave in parts:
            files.add_wave(_lines(wave, form, settings))
    return Batch(files.paths, len(sent), sent.bill, _unbilled(price, settings.model))


def _unbilled(price: Price | None, model: str) -> str:
    """Why the prompts have no bill; empty if they have one."""
    if price is None:
        return f"no price of {model!r} is known. Give price=, an rq.Price or the name of one."
    if not price.breakpoints:
        return (
            f"{price.name} caches by itself, so the requests contain no marks. "
            f"rq.reorder(table, weight={price.name!r}).report.bill estimates what it saves."
        )
    return ""


def chosen(order: Int64s, wanted: Any, count: int) -> Int64s:
    """Where some rows are in the order. Raises ConfigError for rows that are not in the table."""
    try:
        numbers = np.asarray([index(row) for row in wanted], np.int64)
    except (TypeError, OverflowError) as error:
        raise ConfigError(
            f"rows is {wanted!r}; it must be a list of row numbers, such as answers.failed."
        ) from error
    if len(strange := numbers[(numbers < 0) | (numbers >= count)]):
        raise ConfigError(f"Row {strange[0]} is not in the table, which has {count:,} rows.")
    return np.flatnonzero(np.isin(order, numbers))


def _lines(sent: Prompts, form: Form, settings: Settings) -> Iterator[bytes]:
    dump = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
    write = form.writer(settings)
    for prompt, custom_id in zip(sent, sent.custom_ids(), strict=True):
        text = dump(write(prompt, custom_id))
        yield (text if text.isascii() else text.translate(_LINE_ENDS)).encode()
