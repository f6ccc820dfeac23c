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
from relquery.table.cost.billing import Bill
from relquery.table.cost.price import Price
from relquery.table.measure import Fields
from relquery.table.prompts.files import BatchFiles
from relquery.table.prompts.forms import Form, Settings
from relquery.table.prompts.marks import prompts
from relquery.table.prompts.prompts import Prompts
from relquery.table.prompts.source import Source
from relquery.table.prompts.template import Template
from relquery.table.prompts.waves import in_waves

# Ends of a line for readers that split text by Unicode's rules. In JSON they only occur in strings.
_LINE_ENDS = {ord(end): f"\\u{ord(end):04x}" for end in "\u0085\u2028\u2029"}


@dataclass(frozen=True, slots=True)
class Batch:
    """What was written.

    waves: the files, by wave; send a wave once the one before it is answered. requests: how many
    there are. bill: what the provider charges for the prompts if they are sent one after the other,
    at list prices, which batch APIs halve; None if the price has no breakpoints.
    """

    waves: tuple[tuple[Path, ...], ...]
    requests: int
    bill: Bill | None

    @property
    def paths(self) -> tuple[Path, ...]:
        """All files, in the order to send."""
        return tuple(path for wave in self.waves for path in wave)


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
    """Write prompts, a line each, each wave to files of its own; see BatchFiles for their names.

    Raises ConfigError for a prompt that is too long for a file, OSError if writing fails. Then no
    file is written or replaced.
    """
    if waves == 1:
        sent = prompts(source, template, rows, fields, price)
        parts = [sent]
    else:
        sent, parts = in_waves(source, template, rows, fields, price, waves)
    with BatchFiles(path, form.requests, form.size) as files:
        for wave in parts:
            files.add_wave(_lines(wave, form, settings))
    return Batch(files.paths, len(sent), sent.bill)


def chosen(order: Int64s, wanted: Any, count: int) -> Int64s:
    """The places in the order of some rows. Raises ConfigError for rows that the table lacks."""
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
    for prompt, custom_id in zip(sent, sent.custom_ids(), strict=True):
        text = dump(form.request(prompt, custom_id, settings))
        yield (text if text.isascii() else text.translate(_LINE_ENDS)).encode()
