"""The colours of SQL while it is typed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.formatted_text.utils import split_lines
from prompt_toolkit.lexers import Lexer
from prompt_toolkit.styles import Style

from relquery.cli.shell.split import entries, pieces
from relquery.cli.shell.vocabulary import FUNCTIONS, KEYWORDS

STYLE = Style.from_dict(
    {
        "prompt": "bold",
        "continued": "ansibrightblack",
        "sql.keyword": "ansiblue bold",
        "sql.function": "ansimagenta bold",
        "sql.text": "ansigreen",
        "sql.number": "ansicyan",
        "sql.comment": "ansibrightblack",
        "sql.name": "",
        "sql.end": "",
        "sql.code": "",
        "command": "ansiyellow",
    }
)
_WORD = re.compile(r"[^\W\d]\w*|\d[\w.]*|[^\w]+")
_KEYWORDS = frozenset(KEYWORDS)


class SqlLexer(Lexer):
    """Colours keywords, functions of relquery, texts, numbers and comments."""

    def lex_document(self, document: Document) -> Callable[[int], StyleAndTextTuples]:
        """See Lexer."""
        lines = list(split_lines(list(_styled(document.text))))
        return lambda number: lines[number] if number < len(lines) else []


def _styled(text: str) -> Iterator[tuple[str, str]]:
    first = next(iter(entries(text).whole), "")
    if text.lstrip().startswith(".") or (first.startswith(".") and ";" not in text):
        yield "class:command", text
        return
    for piece in pieces(text):
        part = text[piece.start : piece.stop]
        if piece.kind != "code":
            yield f"class:sql.{piece.kind}", part
        else:
            for word in _WORD.findall(part):
                yield _style_of(word), word


def _style_of(word: str) -> str:
    if word.upper() in FUNCTIONS:
        return "class:sql.function"
    if word.upper() in _KEYWORDS:
        return "class:sql.keyword"
    return "class:sql.number" if word[0].isdigit() else "class:sql.code"
