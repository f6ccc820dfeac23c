"""Prompts as files of limited size for a provider's batch API, which are complete or not there."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from operator import index
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import numpy as np

from relquery.arrays import Int64s
from relquery.errors import ConfigError, type_of
from relquery.prices.price import Price
from relquery.reordering.cost.billing import Bill
from relquery.reordering.cost.measure import Fields
from relquery.reordering.prompts.forms import BatchSettings, Form
from relquery.reordering.prompts.prompts import Prompts, TableSource, Template, prompts
from relquery.reordering.prompts.waves import in_waves

_ENDING = ".jsonl"


def batch_path(path: object, template: object) -> Path:
    """The file to write. Raises ConfigError for what is not one, and if the two are swapped."""
    if not isinstance(path, str | PathLike):
        raise ConfigError(
            f"path is {type_of(path)}; it must be the file to write: "
            "write_batch('batch.jsonl', template, form)."
        )
    file = Path(path)
    if isinstance(template, str) and template.endswith(_ENDING) and file.suffix != _ENDING:
        raise ConfigError(
            f"The template is {template!r}, which is the name of a file. The file comes first: "
            f"write_batch({template!r}, template, form)."
        )
    return file


def result_paths(paths: object) -> list[Path]:
    """The files to read: one or several. Raises ConfigError for anything else."""
    given = [paths] if isinstance(paths, str | PathLike) else paths
    files = list(given) if isinstance(given, Iterable) else [given]
    read = []
    for path in files:
        if not isinstance(path, str | PathLike):
            raise ConfigError(
                f"paths has {type_of(path)}; it must be a result file or a list of result files."
            )
        read.append(Path(path))
    return read


class BatchFiles:
    """Files that are being written, by wave. A context that keeps all of them, or none on an error.

    path: the name if there is one file. Otherwise waves and files are numbered before the ending:
    batch-wave1.jsonl, batch-2.jsonl, batch-wave2-3.jsonl. lines, size: the most lines and bytes of
    a file; a line break counts as a byte.
    """

    def __init__(self, path: Path, lines: int, size: int) -> None:
        self._path, self._lines, self._size = path, lines, size
        self._waves: list[list[Path]] = []
        self._open: BinaryIO | None = None
        self._used = (0, 0)  # lines and bytes of the open file
        self.paths: tuple[tuple[Path, ...], ...] = ()

    def __enter__(self) -> Self:
        if not self._path.parent.is_dir():
            raise ConfigError(f"{self._path}: the folder {self._path.parent} does not exist.")
        if self._path.is_dir():
            raise ConfigError(f"{self._path} is a folder. Give a file name.")
        return self

    def add_wave(self, lines: Iterable[bytes]) -> None:
        """Write the lines of one wave, without their line breaks."""
        self._waves.append([])
        self._start()
        for line in lines:
            if len(line) + 1 > self._size:
                raise ConfigError(
                    f"A request has {len(line):,} bytes, which is more than fit into a batch file "
                    f"({self._size:,}). Shorten its row: {line[:60].decode(errors='replace')}..."
                )
            count, size = self._used
            if count == self._lines or size + len(line) + 1 > self._size:
                self._start()
            self._write(line)

    def _write(self, line: bytes) -> None:
        assert self._open is not None
        self._open.write(line + b"\n")
        self._used = self._used[0] + 1, self._used[1] + len(line) + 1

    def _start(self) -> None:
        self._close()
        wave = self._waves[-1]
        number = f"{os.getpid()}-{len(self._waves)}-{len(wave)}"
        path = self._path.with_name(f".{self._path.name}.{number}.part")
        self._open, self._used = path.open("wb"), (0, 0)
        wave.append(path)

    def _close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._close()
            if error is None:
                self.paths = self._keep()
        finally:
            for path in (path for wave in self._waves for path in wave):
                with suppress(OSError):
                    path.unlink(missing_ok=True)

    def _keep(self) -> tuple[tuple[Path, ...], ...]:
        kept = []
        for wave, parts in enumerate(self._waves, start=1):
            names = [self._name(wave, number, len(parts)) for number in range(1, len(parts) + 1)]
            for part, name in zip(parts, names, strict=True):
                os.replace(part, name)
            kept.append(tuple(names))
        return tuple(kept)

    def _name(self, wave: int, number: int, files: int) -> Path:
        middle = f"-wave{wave}" if len(self._waves) > 1 else ""
        middle += f"-{number}" if files > 1 else ""
        return self._path.with_name(f"{self._path.stem}{middle}{self._path.suffix}")


# Some readers also split lines at these. JSON has them only inside strings.
_LINE_ENDS = {ord(end): f"\\u{ord(end):04x}" for end in "\u0085\u2028\u2029"}


@dataclass(frozen=True, slots=True, repr=False)
class Batch:
    """The files of a batch."""

    waves: tuple[tuple[Path, ...], ...]
    """The files of each wave; send a wave when the one before it has been answered."""
    requests: int
    """The number of requests in all."""
    bill: Bill | None
    """What the provider charges for the prompts at list prices if they are sent one after the other
    (batch APIs charge half); None if `unbilled` says why."""
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
    source: TableSource,
    rows: Int64s,
    fields: Fields,
    path: Path,
    template: Template,
    form: Form,
    price: Price | None,
    settings: BatchSettings,
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


def _lines(sent: Prompts, form: Form, settings: BatchSettings) -> Iterator[bytes]:
    dump = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
    write = form.writer(settings)
    for prompt, custom_id in zip(sent, sent.custom_ids(), strict=True):
        text = dump(write(prompt, custom_id))
        yield (text if text.isascii() else text.translate(_LINE_ENDS)).encode()
