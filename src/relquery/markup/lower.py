"""A prompt over a schema as spans at the positions of its layout (paper 001, section 3.4).

The schema's own text and each imported module are independent: they attend to nothing else, so that
their states do not depend on what else is imported. Arguments, added text and modules that must not
be cached follow them in the order of their positions, and attend to all that is before them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from relquery.errors import MarkupError
from relquery.markup.imports import Import, MarkupPrompt, New, PromptContents
from relquery.markup.layout import Laid, Layout, Own, PositionRange
from relquery.markup.tokens import Ids, TokenizedTexts
from relquery.prompt import Blank, Nest, Prompt, Reuse, Role, Span


class Lowered(NamedTuple):
    """A prompt, and the name of each of its independent spans: of a module, or the schema's."""

    prompt: Prompt
    names: tuple[str, ...]


def as_modules(prompt: MarkupPrompt, layout: Layout, tokens: TokenizedTexts) -> Lowered:
    """The prompt with its modules as independent spans. Raises MarkupError."""
    asked = PromptContents.of(prompt.parts)
    skeleton = tokens.skeleton(layout.frame, asked.last)
    own = [each.content for each in layout.own if not each.is_blank]
    if [run for run in skeleton.runs if run] != own:
        raise MarkupError(
            "The model's chat template changes what stands in the schema if messages follow it. "
            "Write the schema without messages, or use another template."
        )
    wanted = _Wanted(prompt)
    wanted.take(asked, layout.modules, PositionRange(0, layout.stop))
    kept = [laid for laid in wanted.imported if laid.module.is_cached]
    kept.sort(key=lambda laid: laid.range.start)  # the same prompt, in whatever order it imports
    chains = _chains(layout, kept)
    added, stop = _added(wanted, layout, tokens)
    tail = skeleton.tail or tokens.ids(["\n"])[0]
    spans = (
        *_spans(chains, layout, tokens),
        *(Span(ids, Role.NONE, position=start) for start, ids in sorted(added)),
        Span(tail, Role.NONE, position=stop),
    )
    return Lowered(spans, tuple(chain.name for chain in chains))


def module_spans(layout: Layout, chosen: Sequence[Laid], tokens: TokenizedTexts) -> list[Span]:
    """The spans of the schema's own text and of some modules, as in any prompt with them."""
    return _spans(_chains(layout, chosen), layout, tokens)


class _Chain(NamedTuple):
    """Own text that is encoded by itself: of a module, or with the path () of the schema. keep: see
    Span."""

    path: tuple[str, ...]
    own: Sequence[Own]
    keep: int

    @property
    def name(self) -> str:
        return "/".join(self.path) or "schema"


def _chains(layout: Layout, modules: Iterable[Laid]) -> list[_Chain]:
    """The schema's own text and that of some modules, where there is any."""
    chains = [_Chain((), _until_last_text(layout.own), 1)]
    for laid in modules:
        own = _until_last_text(laid.own)
        chains.append(_Chain(laid.path, own, 1 + max(0, laid.module.priority)))
    return [chain for chain in chains if chain.own]


def _until_last_text(own: Sequence[Own]) -> Sequence[Own]:
    """Without blanks at the end, to which nothing attends."""
    stop = len(own)
    while stop and own[stop - 1].is_blank:
        stop -= 1
    return own[:stop]


@dataclass(slots=True)
class _Wanted:
    """The parts that a prompt takes from a layout.

    imported: modules, in the prompt's order. arguments: texts with the
    positions that they may take. new: texts with the range in whose gaps they may stand.
    """

    prompt: MarkupPrompt
    imported: list[Laid] = field(default_factory=list)
    arguments: list[tuple[str, PositionRange, Import, str]] = field(default_factory=list)
    new: list[tuple[str, PositionRange]] = field(default_factory=list)

    def take(
        self, asked: PromptContents, modules: Mapping[str, Laid], inside: PositionRange
    ) -> None:
        """Follow the imports of a schema or a module. inside: its positions.

        Text after an import may stand anywhere up to the next import, or the end.
        """
        start, ranges = inside.start, [modules[name].range for name in asked.imports]
        starts = [*(each.start for each in ranges), inside.stop]
        self._add(asked.first, start, starts[0])
        for (name, imported), after in zip(asked.imports.items(), starts[1:], strict=True):
            laid = modules[name]
            self.imported.append(laid)
            for parameter, text in imported.arguments.items():
                self.arguments.append((text, laid.parameters[parameter], imported, parameter))
            within = PromptContents.of(imported.parts)
            self.take(within, laid.inside, laid.range)
            last = max((laid.inside[name].range.stop for name in within.imports), default=None)
            self._add(within.last, laid.range.start if last is None else last, laid.range.stop)
            self._add(asked.after.get(name, ()), laid.range.stop, after)

    def _add(self, texts: Sequence[New], start: int, stop: int) -> None:
        self.new += [(text.content, PositionRange(start, max(start, stop))) for text in texts]


def _added(
    wanted: _Wanted, layout: Layout, tokens: TokenizedTexts
) -> tuple[list[tuple[int, Ids]], int]:
    """Token ids that stand in no module's states, with positions; and where the rest begins."""
    uncached = [laid for laid in wanted.imported if not laid.module.is_cached]
    own = [each for laid in uncached for each in laid.own if not each.is_blank]
    texts = [str(each.content) for each in own]
    texts += [text for text, *_ in wanted.arguments]
    texts += [text for text, _ in wanted.new]
    ids = iter(tokens.ids(texts))
    added = [(each.start, next(ids)) for each in own]
    for _, room, imported, name in wanted.arguments:
        given = next(ids)
        if len(given) > len(room):
            raise MarkupError(
                f"The argument '{name}' of module '{imported.module.name}' has {len(given)} "
                f"tokens; the parameter takes at most {len(room)}. Shorten it, or give the "
                "parameter a greater length in the schema.",
                wanted.prompt.source,
                *imported.place,
            )
        added.append((room.start, given))
    stop = layout.stop
    if wanted.new:
        kept = [each for laid in wanted.imported for each in laid.own if not each.is_blank]
        whole = [each for each in layout.own if not each.is_blank]
        taken = [PositionRange(each.start, each.start + each.tokens) for each in (*whole, *kept)]
        taken += [PositionRange(start, start + len(given)) for start, given in added]
        for (_, gap), given in zip(wanted.new, ids, strict=True):
            start = _first_free(gap, len(given), taken)
            if start is None:
                start, stop = stop, stop + len(given)
            added.append((start, given))
            taken.append(PositionRange(start, start + len(given)))
    return [(start, given) for start, given in added if given], stop


def _first_free(gap: PositionRange, length: int, taken: Sequence[PositionRange]) -> int | None:
    """The first place in a gap that has room; None if there is none."""
    start = gap.start
    for each in sorted(taken, key=lambda one: one.start):
        if each.stop > start and len(each):
            if each.start - start >= length:
                break
            start = max(start, each.stop)
    return start if start + length <= gap.stop else None


def _spans(chains: Sequence[_Chain], layout: Layout, tokens: TokenizedTexts) -> list[Span]:
    """Each chain as an independent span at its position. They are made once for a layout."""
    known = layout.spans
    new = [chain for chain in chains if chain.path not in known]
    texts = [own.content for chain in new for own in chain.own if isinstance(own.content, str)]
    ids = dict(zip(texts, tokens.ids(texts), strict=True)) if texts else {}
    for chain in new:
        begin = chain.own[0].start
        parts = tuple(_part(each, each.start - begin, ids) for each in chain.own)
        known[chain.path] = Span(
            Nest(parts), Role.NONE, Reuse.INDEPENDENT, position=begin, keep=chain.keep
        )
    return [known[chain.path] for chain in chains]


def _part(own: Own, position: int, ids: Mapping[str, Ids]) -> Span:
    if own.is_blank and not own.content:
        return Span(Blank(own.tokens), Role.NONE, position=position)
    content = ids[own.content] if isinstance(own.content, str) else own.content
    return Span(Blank(content) if own.is_blank else content, Role.NONE, position=position)
