"""A reader of XML into elements with positions, without anything that could harm it.

Documents cannot define entities or load anything, and are limited in size and depth. A `<` that
begins no tag, and a `&` that begins no entity, are text, as code is often put in as it is. Files
that markup names are texts, and only those in the schema's own folder.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from xml.parsers import expat

from relquery.errors import MarkupError, PromptWarning, warn
from relquery.unicode import valid

MOST_BYTES = 16 * 2**20
MOST_LEVELS = 200
_LESS, _AND = "\ufdd0", "\ufdd1"  # characters that no text has, for those that are text
_AS_WRITTEN = str.maketrans({_LESS: "<", _AND: "&"})
_ATTRIBUTE = r"""\s+[\w:.-]+\s*=\s*(?:"[^"]*"|'[^']*')"""
_VALUE = re.compile(r"""=\s*(?:"[^"]*"|'[^']*')""")
_ENTITY = r"&(?:#\d+|#x[\da-fA-F]+|\w+);"
_SIGN = re.compile(rf"<|(?!{_ENTITY})&")
_TAG = re.compile(
    rf"<!--.*?-->|<!\[CDATA\[.*?\]\]>|<\?.*?\?>|<!DOCTYPE|</?[^\W\d][\w:.-]*(?:{_ATTRIBUTE})*\s*/?>"
    rf"|{_ENTITY}|(?P<less><)|(?P<and>&)",
    re.DOTALL,
)


class SourcePosition(NamedTuple):
    """Line and column in a document, from 1."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Words:
    """Text between tags, as it is written."""

    text: str
    place: SourcePosition


@dataclass(frozen=True, slots=True)
class Element:
    """A tag with its attributes and what it contains. place: of its opening tag."""

    tag: str
    attributes: dict[str, str]
    children: tuple[Element | Words, ...]
    place: SourcePosition


@dataclass(slots=True)
class _Open:
    """An element whose end has not been read. words: the parts of a text in it that goes on."""

    tag: str
    attributes: dict[str, str]
    place: SourcePosition
    children: list[Element | Words] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    words_at: SourcePosition | None = None

    def end_words(self) -> None:
        """Make a child of the text."""
        if self.words:
            assert self.words_at is not None
            self.children.append(Words("".join(self.words), self.words_at))
            self.words = []


def read(text: str) -> Element:
    """The root element of a document. Raises MarkupError."""
    try:
        content = text.encode()
    except UnicodeEncodeError as error:
        before = text[: error.start].split("\n")
        raise MarkupError(
            f"The document is not valid Unicode text: it has the lone surrogate "
            f"{text[error.start]!r}. Remove it.",
            valid(text),
            len(before),
            len(before[-1]) + 1,
        ) from None
    if len(content) > MOST_BYTES:
        raise MarkupError(
            f"The document has {len(content):,} bytes; it must have at most {MOST_BYTES:,}. "
            "Split it into several schemas, or load long texts with src=."
        )
    try:
        return _Reader(text).read(content)
    except MarkupError as error:
        bare = _TAG.sub(_text, text)
        if bare == text:
            raise
        try:
            root = _Reader(bare).read(bare.encode())
        except MarkupError:
            raise error from None
        first = next(index for index, sign in enumerate(bare) if sign != text[index])
        line = text.count("\n", 0, first) + 1
        warn(
            f"A bare {text[first]} is read as text (line {line}, and maybe further ones). Write "
            "&lt; for <, and &amp; for &; code may stand in <![CDATA[ ... ]]>.",
            PromptWarning,
        )
        return root


def _text(match: re.Match[str]) -> str:
    """What stays of a tag, an entity or a sign, in as many characters."""
    if match.lastgroup is not None:
        return _sign(match)
    is_tag = match[0][:2] not in ("<!", "<?")
    return _VALUE.sub(lambda value: _SIGN.sub(_sign, value[0]), match[0]) if is_tag else match[0]


def _sign(match: re.Match[str]) -> str:
    return _LESS if match[0] == "<" else _AND


class _Reader:
    """One pass through a document."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._path: list[_Open] = []
        self._root: Element | None = None
        self._parser = parser = expat.ParserCreate("utf-8")
        parser.buffer_text = False  # each text must know where it begins
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._words
        parser.StartDoctypeDeclHandler = self._refuse_doctype

    def read(self, content: bytes) -> Element:
        try:
            self._parser.Parse(content, True)
        except expat.ExpatError as error:
            why = expat.ErrorString(error.code)
            place = SourcePosition(error.lineno, error.offset + 1)
            raise self.error(f"This is not well-formed XML: {why}.", place) from None
        assert self._root is not None, "a well-formed document has a root"
        return self._root

    def error(self, message: str, place: SourcePosition) -> MarkupError:
        return MarkupError(message, self._text, *place)

    @property
    def _place(self) -> SourcePosition:
        return SourcePosition(self._parser.CurrentLineNumber, self._parser.CurrentColumnNumber + 1)

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        if len(self._path) == MOST_LEVELS:
            raise self.error(f"Tags are nested more than {MOST_LEVELS} levels deep.", self._place)
        if self._path:
            self._path[-1].end_words()
        attributes = {name: value.translate(_AS_WRITTEN) for name, value in attributes.items()}
        self._path.append(_Open(tag, attributes, self._place))

    def _end(self, tag: str) -> None:
        ended = self._path.pop()
        ended.end_words()
        made = Element(ended.tag, ended.attributes, tuple(ended.children), ended.place)
        if self._path:
            self._path[-1].children.append(made)
        else:
            self._root = made

    def _words(self, text: str) -> None:
        """Text comes in parts: line by line, and around entities and comments."""
        inside = self._path[-1]
        if not inside.words:
            inside.words_at = self._place
        inside.words.append(text.translate(_AS_WRITTEN))

    def _refuse_doctype(self, *declared: Any) -> None:
        before = self._text[: self._text.find("<!DOCTYPE")].split("\n")  # expat tells its end
        raise self.error(
            "A document type is declared, which could define entities. Remove <!DOCTYPE ...>.",
            SourcePosition(len(before), len(before[-1]) + 1),
        )


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
