"""The schemas that prompts may name, laid out for one backend, and the prompts over them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from relquery.backends.base import Backend, cancelling
from relquery.errors import MarkupError, RequestError, type_of
from relquery.markup.imports import MarkupPrompt
from relquery.markup.layout import Layout, lay_out
from relquery.markup.lower import Lowered, as_modules, module_spans
from relquery.markup.schema import Schema
from relquery.markup.tokens import TokenizedTexts, as_text
from relquery.prompt import Answer, Finish, Sampling


@dataclass(frozen=True, slots=True)
class Used:
    """Sources of a prompt's tokens."""

    name: str
    """A module's path, "schema" for the schema's own text, "prompt" for what only the prompt
    has."""
    tokens: int
    """The tokens that came from it."""
    cached: int
    """Those of them whose states were there."""
    sources: tuple[str, ...] = ()
    """The places of these states: "cache", "memory", "disk"."""


@dataclass(frozen=True, slots=True)
class PromptResult:
    """The answer to a prompt over a schema."""

    text: str
    """The answer, even if it was cut off; `answer.finish` says so."""
    answer: Answer
    used: tuple[Used, ...] = ()
    """What its tokens came from; empty where the backend has no modules."""

    def __str__(self) -> str:
        return self.text


@dataclass(slots=True)
class Schemas:
    """Schemas by name, and their layouts once they are needed."""

    backend: Backend
    _known: dict[str, Schema] = field(default_factory=dict)
    _layouts: dict[str, Layout] = field(default_factory=dict)
    _tokens: TokenizedTexts = field(init=False)

    def __post_init__(self) -> None:
        self._tokens = TokenizedTexts(self.backend)

    @property
    def known(self) -> Mapping[str, Schema]:
        """The schemas by name."""
        return self._known

    def add(self, schema: Schema, *, prepare: bool = False) -> None:
        """Let prompts name a schema. It replaces one of the same name.

        prepare: compute the states of its modules now. Raises MarkupError for one that cannot be
        laid out, and RequestError for a module that cannot be computed.
        """
        if not isinstance(schema, Schema):
            raise MarkupError(
                f"The schema is {type_of(schema)}; it must be an rq.Schema. Read one with "
                "rq.Schema.load(FILE) or rq.Schema.parse(TEXT)."
            )
        self._known[schema.name] = schema
        self._layouts.pop(schema.name, None)
        if prepare and self.backend.limits.has_modules:
            layout = self.layout(schema.name)
            chosen = [laid for laid in layout.all() if laid.module.is_cached]
            self.backend.insight.prepare(
                [(span,) for span in module_spans(layout, chosen, self._tokens)]
            )

    def remove(self, name: str) -> None:
        """Forget a schema. Does nothing if it is not known."""
        self._known.pop(name, None)
        self._layouts.pop(name, None)

    def layout(self, name: str) -> Layout:
        """The layout of a known schema. Raises MarkupError."""
        if name not in self._layouts:
            self._layouts[name] = lay_out(self._known[name], self._tokens)
        return self._layouts[name]

    def lower(self, text: str, *, independent: bool = True) -> Lowered:
        """A prompt as the backend takes it: with modules, or as plain text. Raises MarkupError.

        independent: whether modules are wanted.
        """
        if not isinstance(text, str):
            raise MarkupError(f"The prompt is {type_of(text)}; it must be a string of markup.")
        if not self._known:
            raise MarkupError(
                "No schema is registered. Register one with con.register(rq.Schema.load(FILE))."
            )
        prompt = MarkupPrompt.parse(text, self._known)
        if not self.backend.limits.has_modules:
            return Lowered(as_text(prompt), ())
        # Plain text is checked against the layout too, so both forms refuse the same prompts.
        modules = as_modules(prompt, self.layout(prompt.schema.name), self._tokens)
        return modules if independent else Lowered(as_text(prompt), ())

    def ask(self, text: str, sampling: Sampling, *, independent: bool = True) -> PromptResult:
        """Answer a prompt. Raises MarkupError, and RequestError if it has no answer."""
        lowered = self.lower(text, independent=independent)
        used = self.used(lowered)
        answers = self.backend.answer([lowered.prompt], sampling)
        with cancelling(answers):
            ((_, answer),) = answers
        if answer.text is None or answer.finish not in (Finish.STOP, Finish.LENGTH):
            raise RequestError(answer.error or f"It ended without an answer ({answer.finish}).")
        return PromptResult(answer.text, answer, tuple(used))

    def used(self, lowered: Lowered, backend: Backend | None = None) -> list[Used]:
        """What the tokens of a prompt come from, if it is asked now; nothing without modules.

        backend: that is asked, if it is another one.
        """
        if not lowered.names:
            return []
        states = (backend or self.backend).insight.inspect(lowered.prompt) or ()
        used = []
        for number, name in (*enumerate(lowered.names, 1), (0, "prompt")):
            mine = [state for state in states if state.span == number]
            sources = dict.fromkeys(state.source for state in mine if state.source)
            tokens, cached = (sum(getattr(s, n) for s in mine) for n in ("tokens", "cached"))
            used.append(Used(name, tokens, cached, tuple(sources)))
        return used
