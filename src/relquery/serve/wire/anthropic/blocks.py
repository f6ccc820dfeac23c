"""Text blocks of messages, and the cache breakpoints on them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from relquery.serve.body import NONE_OF, Body, Inner
from relquery.serve.errors import HttpError, not_supported

MOST_BREAKPOINTS = 4
SECONDS = {"5m": 300.0, "1h": 3600.0}
"""How long what a breakpoint ends is kept after its last use."""
LEVELS = {"5m": 1, "1h": 2}
"""What is kept for longer is kept before the rest when the cache is full."""


class CacheControl(Inner):
    """A cache breakpoint: the prompt up to the end of its block is kept."""

    type: Literal["ephemeral"]
    ttl: Literal["5m", "1h"] = "5m"


class TextBlock(Body):
    """Text, of which several may make up a message. Other kinds of blocks are refused by name."""

    ACCEPTED: ClassVar[Mapping[str, Any]] = {"citations": NONE_OF}
    type: Literal["text"]
    text: Annotated[str, Field(min_length=1)]
    cache_control: CacheControl | None = None

    @model_validator(mode="before")
    @classmethod
    def _refuse_others(cls, given: Any) -> Any:
        kind = given.get("type") if isinstance(given, dict) else None
        if isinstance(kind, str) and kind != "text":
            raise not_supported(f"content of type {kind[:40]}", "Send text blocks.")
        return given


def _form_of(given: object) -> str:
    return "blocks" if isinstance(given, list) else "text"


# Discriminated so that an error names what is wrong in a block, not that it is no string.
Content = Annotated[
    Annotated[str, Tag("text")] | Annotated[list[TextBlock], Field(min_length=1), Tag("blocks")],
    Discriminator(_form_of),
]
System = Annotated[
    Annotated[str, Tag("text")] | Annotated[list[TextBlock], Tag("blocks")],
    Discriminator(_form_of),
]
"""Content that may be empty."""


def blocks_of(content: System) -> list[TextBlock]:
    """Content as blocks: a string is one. Those of an empty string are none."""
    if isinstance(content, str):
        return [TextBlock.model_construct(type="text", text=content)] if content else []
    return content


def with_automatic(
    blocks: list[TextBlock], automatic: CacheControl | None
) -> list[CacheControl | None]:
    """The breakpoint of each block. automatic: the request's, for its last block.

    Raises HttpError for more of them than there may be, and for one of an hour after others.
    """
    found = [block.cache_control for block in blocks]
    if automatic is not None and found:
        if found[-1] is not None and found[-1] != automatic:
            raise _invalid("The last block has a cache_control with another ttl than the request.")
        found[-1] = automatic
    ttls = [each.ttl for each in found if each is not None]
    if len(ttls) > MOST_BREAKPOINTS:
        raise _invalid(
            f"{len(ttls)} blocks have cache_control; at most {MOST_BREAKPOINTS} may have it."
        )
    if ttls != sorted(ttls):  # "1h" is before "5m"
        raise _invalid("A cache_control with ttl 1h comes after one with ttl 5m; it must be first.")
    return found


def _invalid(message: str) -> HttpError:
    return HttpError(400, message, "invalid_request", "cache_control")
