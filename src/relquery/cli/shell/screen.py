"""Where the shell shows results and messages."""

from __future__ import annotations

import io
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from rich.console import Console, RenderableType

from relquery.cli.sql.explained import drawn
from relquery.cli.sql.formats import SHOWN, TEXTS, Format
from relquery.cli.terminal.records import fits, records
from relquery.cli.terminal.show import result_table, say
from relquery.errors import ConfigError
from relquery.sql.render import printable, view_of
from relquery.sql.result import Result

_WIDE = 100_000
"""Columns of a file."""


@dataclass(slots=True)
class Screen:
    """Results go to standard output or to a file, messages to standard error.

    form: of results. rows: how many rows of a result are shown; a file gets all. path: of the file.
    """

    form: Format = Format.TABLE
    rows: int = SHOWN
    path: Path | None = None
    _file: TextIO | None = None

    @property
    def width(self) -> int:
        """The width available for results, in columns."""
        return Console().width if self._file is None else _WIDE

    def show(self, result: Result) -> None:
        """Show the rows of a result; nothing for a statement that returns none."""
        if not result.columns:
            return
        if self.form is not Format.TABLE:
            self._write(TEXTS[self.form](result))
        elif view_of(result.table, "text") is not None:
            self.draw(drawn(result.table))
        elif self._file is not None:
            self.draw(result_table(result, len(result)))
        elif fits(result, self.rows, self.width):
            self.draw(result_table(result, self.rows))
        else:
            self.draw(records(result, self.rows))

    def draw(self, view: RenderableType) -> None:
        """Show a table or another renderable."""
        if self._file is None:
            Console().print(view)
            return
        drawn = Console(file=io.StringIO(), width=_WIDE, color_system=None)
        drawn.print(view)
        assert isinstance(drawn.file, io.StringIO)
        lines = drawn.file.getvalue().splitlines()
        self._write("".join(f"{line.rstrip()}\n" for line in lines))

    def say(self, text: str, style: str | None = None) -> None:
        """Show a message."""
        shown = printable(text, "\n\t")
        say(shown, style)

    def redirect(self, path: Path | None) -> None:
        """Send results to a file, which is emptied, or to standard output. Raises ConfigError."""
        new = None
        if path is not None:
            try:
                new = path.open("w", encoding="utf-8", newline="")
            except OSError as error:
                raise ConfigError(f"{path} cannot be written: {error.strerror}.") from error
        self.close()
        self._file, self.path = new, path

    def close(self) -> None:
        """Close the file, if there is one."""
        if self._file is not None:
            file, self._file, self.path = self._file, None, None
            with suppress(OSError):  # writing to it has said so
                file.close()

    def _write(self, text: str) -> None:
        file = sys.stdout if self._file is None else self._file
        file.write(text)
        file.flush()
