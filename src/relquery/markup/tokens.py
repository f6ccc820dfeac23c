"""The tokens of markup, as a backend's tokenizer and chat template give them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TypeAlias

from relquery.backends.base import Backend
from relquery.errors import MarkupError
from relquery.markup.plain import trailing
from relquery.markup.read.imports import New
from relquery.markup.read.parts import Message, Module, Text, Union, messages
from relquery.markup.read.schema import Schema
from relquery.prompt import Prompt, Reuse, Role, Span

Ids: TypeAlias = "tuple[int, ...]"
Group: TypeAlias = "tuple[Module | Union, ...]"
"""Modules and unions with nothing between them."""


@dataclass(frozen=True, slots=True)
class Skeleton:
    """A schema's own text with the chat template.

    runs: token ids before each group of modules, and after the last. tail: of what a prompt adds
    behind the schema, up to where the answer begins.
    """

    runs: tuple[Ids, ...]
    groups: tuple[Group, ...]
    tail: Ids


@dataclass(slots=True)
class Tokens:
    """Tokenises for one backend, each text once."""

    backend: Backend
    _lengths: dict[str, int] = field(default_factory=dict)

    def lengths(self, texts: Iterable[str]) -> dict[str, int]:
        """Tokens of each text, all of them tokenised together if they are new."""
        new = [text for text in dict.fromkeys(texts) if text not in self._lengths]
        self._lengths.update(zip(new, map(len, self.ids(new)), strict=True))
        return self._lengths

    def ids(self, texts: Sequence[str]) -> list[Ids]:
        """Token ids of each text, tokenised by itself."""
        between = Span((), Role.NONE, Reuse.INDEPENDENT)
        spans = chain.from_iterable((Span(text, Role.NONE), between) for text in texts)
        return self._runs(tuple(spans))[: len(texts)]

    def skeleton(self, schema: Schema, added: Sequence[New] = ()) -> Skeleton:
        """A schema's own text, followed by what a prompt adds after its last import."""
        spans: list[Span] = []
        groups: list[list[Module | Union]] = []
        for message in messages(schema.parts):
            spans += _spans(message, groups)
        role = spans[-1].role if spans else Role.USER
        spans.append(Span((), role, Reuse.INDEPENDENT))  # the schema ends here
        for new_role, texts in trailing(schema, added):
            spans.append(Span("".join(texts), new_role or role, begins=new_role is not None))
        *runs, tail = self._runs(tuple(spans))
        return Skeleton(tuple(runs), tuple(map(tuple, groups)), tail)

    def _runs(self, prompt: Prompt) -> list[Ids]:
        if not prompt:
            return []
        runs = self.backend.runs(prompt)
        if runs is None:
            raise MarkupError(
                f"Modules need the local engine; '{self.backend.name}' is served elsewhere."
            )
        return runs


def _spans(message: Message, groups: list[list[Module | Union]]) -> list[Span]:
    """A message's own text, and an empty independent span for each group of modules in it."""
    spans: list[Span] = []
    for part in message.parts:
        begins = not spans
        if isinstance(part, Text):
            spans.append(Span(part.content, message.role, begins=begins))
        elif isinstance(part, Module | Union):
            if begins or spans[-1].reuse is Reuse.PREFIX:
                spans.append(Span((), message.role, Reuse.INDEPENDENT, begins=begins))
                groups.append([])
            groups[-1].append(part)
    return spans or [Span("", message.role, begins=True)]
