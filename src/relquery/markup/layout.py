"""Positions of all that a schema holds (paper 001, section 3.3)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from relquery.errors import MarkupError
from relquery.markup.reader import SourcePosition
from relquery.markup.schema import LooseText, Message, Module, ModuleParameter, Part, Schema, Union
from relquery.markup.tokens import Ids, SchemaFrame, TokenizedTexts
from relquery.prompt import Span


@dataclass(frozen=True, slots=True)
class Own:
    """Some of the text that stands in a module, or in the schema, and in no module inside it.

    start: position of its first token. tokens: how many. content: the text; for what the template
    gives, token ids. is_blank: whether it stands for an argument or a union's member. Then content
    may be empty: the unknown token, `tokens` times.
    """

    start: int
    tokens: int
    content: str | Ids
    is_blank: bool = False


@dataclass(frozen=True, slots=True)
class PositionRange:
    """Positions from `start` on, before `stop`."""

    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True, slots=True, eq=False)
class Laid:
    """A module with its positions, which follow from the schema alone.

    path: names of the modules around it, and its own. range: all positions that it reserves.
    parameters: the positions of each. inside: the modules in it, by name.
    """

    path: tuple[str, ...]
    module: Module
    range: PositionRange
    own: tuple[Own, ...]
    parameters: Mapping[str, PositionRange]
    inside: Mapping[str, Laid]

    @property
    def tokens(self) -> int:
        """Tokens of its own text, whose states are kept; those of blanks as well."""
        return sum(own.tokens for own in self.own)

    def all(self) -> Iterator[Laid]:
        """The module, and all in it."""
        yield self
        for each in self.inside.values():
            yield from each.all()


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """A schema with the positions of all in it.

    frame, own: its own text. stop: where it ends. spans: those that prompts have imported so far,
    by path; () for the schema's own text.
    """

    schema: Schema
    frame: SchemaFrame
    own: tuple[Own, ...]
    modules: Mapping[str, Laid]
    stop: int
    spans: dict[tuple[str, ...], Span] = field(default_factory=dict)

    def all(self) -> Iterator[Laid]:
        """All modules, in the order of the schema."""
        for laid in self.modules.values():
            yield from laid.all()


def lay_out(schema: Schema, tokens: TokenizedTexts) -> Layout:
    """Give each part of a schema its positions.

    Parts follow one another. Members of a union begin at one position, and what follows them begins
    after the longest. A parameter has as many positions as its length says. Raises MarkupError.
    """
    frame = SchemaFrame.of(schema)
    skeleton = tokens.skeleton(frame)
    laying = _Laying(schema, tokens.lengths(_texts(schema)))
    own: list[Own] = []
    modules: dict[str, Laid] = {}
    end = 0
    for run, group in zip(skeleton.runs, (*frame.groups, ()), strict=True):
        if run:
            own.append(Own(end, len(run), run))
        inside = laying.parts(group, end + len(run), ())
        own += inside.own
        modules |= inside.modules
        end = inside.stop
    _check_room(schema, modules.values(), end, tokens.backend.limits.context)
    return Layout(schema, frame, tuple(own), modules, end)


def _check_room(schema: Schema, modules: Iterable[Laid], stop: int, context: int | None) -> None:
    """Raise MarkupError for a schema that ends where the model has no positions."""
    if context is None or stop < context:
        return
    beyond = (laid.module.place for laid in modules if laid.range.stop >= context)
    raise MarkupError(
        f"The schema '{schema.name}' takes {stop:,} positions, but the model has {context:,}, of "
        "which a prompt and its answer need some. Shorten it, put modules of which prompts import "
        "one into a union, or split it.",
        schema.source,
        *next(beyond, SourcePosition(1, 1)),
    )


@dataclass(slots=True)
class _Inside:
    """Parts as they are laid out. stop: where the next one begins."""

    stop: int
    own: list[Own] = field(default_factory=list)
    parameters: dict[str, PositionRange] = field(default_factory=dict)
    modules: dict[str, Laid] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Laying:
    """One schema being laid out. lengths: tokens of each text."""

    schema: Schema
    lengths: Mapping[str, int]

    def parts(self, parts: Sequence[Part], start: int, path: tuple[str, ...]) -> _Inside:
        """What stands in a module, or a group of modules of the schema."""
        inside = _Inside(start)
        for part in parts:
            end = inside.stop
            match part:
                case LooseText(content):
                    inside.own.append(Own(end, self.lengths[content], content))
                    inside.stop += self.lengths[content]
                case ModuleParameter():
                    inside.own.append(self._blank(part, end))
                    inside.stop += part.length
                    inside.parameters[part.name] = PositionRange(end, inside.stop)
                case Module():
                    self._add(inside, (part,), "", path)
                case Union(modules, scaffold):
                    self._add(inside, modules, scaffold, path)
                case Message():
                    raise AssertionError("messages are not in modules")
        return inside

    def _add(
        self, inside: _Inside, modules: Sequence[Module], scaffold: str, path: tuple[str, ...]
    ) -> None:
        """Lay out modules that begin at one position. scaffold: the one that stands there for what
        is around them."""
        start = inside.stop
        for module in modules:
            mine = (*path, module.name)
            laid_out = self.parts(module.parts, start, mine)
            laid = Laid(
                mine,
                module,
                PositionRange(start, laid_out.stop),
                tuple(laid_out.own),
                laid_out.parameters,
                laid_out.modules,
            )
            inside.modules[module.name] = laid
            inside.stop = max(inside.stop, laid_out.stop)
            if module.name == scaffold:
                inside.own += [replace(own, is_blank=True) for own in laid.own]

    def _blank(self, parameter: ModuleParameter, start: int) -> Own:
        length, scaffold = parameter.length, parameter.scaffold
        if not scaffold:
            return Own(start, length, "", is_blank=True)
        if self.lengths[scaffold] > length:
            raise MarkupError(
                f"The scaffold of parameter '{parameter.name}' has {self.lengths[scaffold]} "
                f"tokens; its length is {length}. Raise the length, or shorten the scaffold.",
                self.schema.source,
                *parameter.place,
            )
        return Own(start, self.lengths[scaffold], scaffold, is_blank=True)


def _texts(schema: Schema) -> Iterator[str]:
    """All texts that are in modules."""
    for _, module in schema.modules():
        for part in module.parts:
            match part:
                case LooseText(content):
                    yield content
                case ModuleParameter(_, _, scaffold) if scaffold:
                    yield scaffold
                case _:
                    pass
