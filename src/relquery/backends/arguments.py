"""Checks of what users hand to an engine, at the call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from relquery.errors import ConfigError, type_of
from relquery.prompt import Blank, Exchange, Nest, Prompt, Reuse, Role, Span
from relquery.tools import ToolCall, ToolResult, Tools

_CONTENTS = (str, tuple, Exchange, Nest, Blank, Tools, ToolCall, ToolResult)
_DEEPEST = 200  # spans in spans


def split_adapter(model: str) -> tuple[str, str]:
    """The names of a model and of the adapter that it is used with, "" for none: BASE+ADAPTER.

    A file or folder that is there may have a plus in its own name, and so may an adapter's folder.
    """
    if Path(model).exists():
        return model, ""
    parts = model.split("+")
    pairs = [
        ("+".join(parts[:index]), "+".join(parts[index:])) for index in range(len(parts) - 1, 0, -1)
    ]
    named = [pair for pair in pairs if all(pair)]
    return max(named, key=lambda pair: Path(pair[1]).is_dir(), default=(model, ""))


def read_adapters(given: object, used: str = "") -> dict[str, str]:
    """Adapters by name, each a folder or a Hugging Face name. used: one that goes by that.

    Raises ConfigError.
    """
    adapters = {} if given is None else given
    if not isinstance(adapters, Mapping) or not all(
        isinstance(name, str) and name and isinstance(where, str | Path)
        for name, where in adapters.items()
    ):
        raise ConfigError(
            f"adapters is {given!r}; it must be a dict from names to folders or Hugging Face names."
        )
    return {name: str(where) for name, where in adapters.items()} | ({used: used} if used else {})


def texts_of(name: str, given: Sequence[str]) -> tuple[str, ...]:
    """Texts, none of them empty. name: of the argument. Raises ConfigError."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise ConfigError(f"{name} is {given!r}; it must be a list of strings.")
    texts = tuple(str(text) if isinstance(text, str) else text for text in given)  # NumPy's, too
    for text in texts:
        if not isinstance(text, str) or not text:
            raise ConfigError(f"{name} contains {text!r}; it must contain non-empty strings.")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ConfigError(
                f"{name} contains {text!r}, which is not valid Unicode text: {error}."
            ) from error
    return texts


def prompts_of(given: Iterable[str | Prompt], name: str = "prompts") -> list[Prompt]:
    """Texts and tuples of Spans as prompts. name: of the argument. Raises ConfigError."""
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        raise ConfigError(
            f"{name} is {type_of(given)}; it must be a list of prompts. For a single "
            "prompt, give [prompt]."
        )
    return [_prompt(index, each) for index, each in enumerate(given)]


def _prompt(index: int, given: object) -> Prompt:
    if isinstance(given, str):
        return (Span(given),)
    if not isinstance(given, (tuple, list)) or not all(isinstance(span, Span) for span in given):
        raise ConfigError(
            f"Prompt {index} is {type_of(given)}; it must be a string, or a tuple of Spans "
            "(relquery.prompt.Span)."
        )
    todo = [(span, 0) for span in given]
    while todo:
        span, depth = todo.pop()
        if depth > _DEEPEST or not _is_span(span):
            shown = "spans in spans without end" if depth > _DEEPEST else repr(span)
            raise ConfigError(
                f"Prompt {index} has {shown}. A span's content is a string, a tuple of token ids, "
                f"an Exchange, a Nest of spans or a Blank, at most {_DEEPEST} levels deep; its "
                "role is a Role, and its reuse a Reuse."
            )
        todo += [(below, depth + 1) for below in _spans_in(span)]
    return tuple(given)


def _is_span(span: object) -> bool:
    return (
        isinstance(span, Span)
        and isinstance(span.content, _CONTENTS)
        and isinstance(span.role, Role)
        and isinstance(span.reuse, Reuse)
        and isinstance(_spans_in(span), tuple)
    )


def _spans_in(span: Span) -> Prompt:
    match span.content:
        case Exchange(prompt=spans) | Nest(spans=spans):
            return spans
    return ()
