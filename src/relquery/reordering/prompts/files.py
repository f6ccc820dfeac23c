"""Writes lines to files of limited size, which get their names once all are complete."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from relquery.errors import ConfigError, type_of

_ENDING = ".jsonl"


def batch_path(path: object, template: object) -> Path:
    """The file to write. Raises ConfigError for what is not one, and if the two are swapped."""
    if not isinstance(path, str | PathLike):
        raise ConfigError(
            f"path is {type_of(path)}; it must be the file to write: "
            "write_batch('batch.jsonl', template, form)."
        )
    found = Path(path)
    if isinstance(template, str) and template.endswith(_ENDING) and found.suffix != _ENDING:
        raise ConfigError(
            f"The template is {template!r}, which is the name of a file. The file comes first: "
            f"write_batch({template!r}, template, form)."
        )
    return found


def result_paths(paths: object) -> list[Path]:
    """The files to read: one or several. Raises ConfigError for anything else."""
    given = [paths] if isinstance(paths, str | PathLike) else paths
    found = list(given) if isinstance(given, Iterable) else [given]
    read = []
    for one in found:
        if not isinstance(one, str | PathLike):
            raise ConfigError(
                f"paths has {type_of(one)}; it must be a result file or a list of result files."
            )
        read.append(Path(one))
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
