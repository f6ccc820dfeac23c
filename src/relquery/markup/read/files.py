"""Files that markup names: texts, and only those in the schema's own folder."""

from __future__ import annotations

from pathlib import Path

from relquery.errors import MarkupError
from relquery.markup.read.reader import MOST_BYTES


def read_text(file: Path) -> str:
    """The text of a file. Raises MarkupError."""
    try:
        size = file.stat().st_size
        if size > MOST_BYTES:
            raise MarkupError(
                f"{file} has {size:,} bytes; it must have at most {MOST_BYTES:,}. Split it."
            )
        return file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise MarkupError(f"{file} cannot be read: {error.strerror or error}.") from error
    except UnicodeDecodeError as error:
        raise MarkupError(f"{file} is not UTF-8 text: {error}.") from error


def find(folder: Path, name: str) -> Path:
    """A file of a folder, or of a folder in it. Raises ValueError with why it may not be read.

    Links are followed first, so that none leads out of the folder.
    """
    try:
        inside = folder.resolve()
        file = (inside / name).resolve()
        is_file = file.is_file()
    except (OSError, RuntimeError) as error:  # too long, or links in a circle
        shown = name if len(name) < 100 else f"{name[:100]}..."
        raise ValueError(f"src='{shown}' is not the name of a file that can be read.") from error
    if not file.is_relative_to(inside):
        raise ValueError(f"src='{name}' is outside the schema's folder. Copy the file into it.")
    if not is_file:
        raise ValueError(f"src='{name}' is not a file in the schema's folder.")
    return file
