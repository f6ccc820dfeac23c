"""A prompt: what it imports from its schema, arguments, and its own text (paper 001, §3.2.1)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from relquery.errors import MarkupError, did_you_mean, unknown
from relquery.markup.reader import Element, SourcePosition, Words, read
from relquery.markup.schema import (
    ROLES,
    LooseText,
    Message,
    Module,
    ModuleParameter,
    Part,
    Schema,
    Union,
    named,
    tidy,
)
from relquery.prompt import Role


@dataclass(frozen=True, slots=True)
class Import:
    """A module that a prompt imports.

    arguments: by the module's parameters. parts: what is imported from inside it, and text that is
    new there, in the prompt's order.
    """

    module: Module
    arguments: Mapping[str, str]
    parts: tuple[PromptPart, ...]
    place: SourcePosition


@dataclass(frozen=True, slots=True)
class New:
    """Text that is in the prompt alone. role: who says it; None for who says what is around it."""

    content: str
    role: Role | None = None


PromptPart: TypeAlias = "Import | New"


@dataclass(frozen=True, slots=True)
class MarkupPrompt:
    """A prompt over a schema, all of whose imports exist. source: as written, for messages."""

    schema: Schema
    parts: tuple[PromptPart, ...]
    source: str

    @classmethod
    def parse(cls, text: str, schemas: Mapping[str, Schema] | Schema) -> MarkupPrompt:
        """A prompt from its text. schemas: those it may name, or its own. Raises MarkupError."""
        return _Reading(text, schemas).prompt()

    def imports(self) -> Iterator[tuple[str, ...]]:
        """The path of each imported module, in the prompt's order."""
        yield from _paths(self.parts, ())


def _paths(parts: tuple[PromptPart, ...], path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for part in parts:
        if isinstance(part, Import):
            yield (*path, part.module.name)
            yield from _paths(part.parts, (*path, part.module.name))


class _Reading:
    """One prompt being read."""

    def __init__(self, text: str, schemas: Mapping[str, Schema] | Schema) -> None:
        self._text, self._schemas = text, schemas

    def prompt(self) -> MarkupPrompt:
        root = read(self._text)
        if root.tag != "prompt":
            raise self._error(f"A prompt begins with <prompt schema=...>, not <{root.tag}>.", root)
        for name in root.attributes:
            if name != "schema":
                raise self._error(unknown("attribute", name, ["schema"], of="<prompt>"), root)
        schema = self._schema(root)
        parts = self._parts(root, schema.parts, f"schema '{schema.name}'")
        return MarkupPrompt(schema, parts, self._text)

    def _schema(self, root: Element) -> Schema:
        known = self._schemas
        if isinstance(known, Schema):
            known = {known.name: known}
        if "schema" not in root.attributes:
            example = next(iter(known), "NAME")
            raise self._error(
                f"<prompt> does not name its schema. Write <prompt schema='{example}'>.", root
            )
        name = root.attributes["schema"]
        if name not in known:
            raise self._error(unknown("schema", name, sorted(known)), root)
        return known[name]

    def _parts(
        self, element: Element, around: Sequence[Part], where: str
    ) -> tuple[PromptPart, ...]:
        """around: the parts of the schema or module whose element this is."""
        modules = {
            module.name: module for module in named(tuple(around)) if isinstance(module, Module)
        }
        unions = dict(_union_of(tuple(around)))
        taken: dict[str, str] = {}  # by name of a module, or of the first in a union
        parts: list[PromptPart] = []
        for child in element.children:
            if isinstance(child, Words):
                if content := tidy(child.text):
                    parts.append(New(content))
                continue
            if child.tag in ROLES and child.tag not in modules:
                if element.tag != "prompt":
                    raise self._error(f"<{child.tag}> is in a module. Write it outside.", child)
                parts.append(self._said(child))
                continue
            if any(isinstance(part, New) and part.role for part in parts):
                raise self._error(
                    f"<{child.tag}> follows a message. Import all modules before the messages that "
                    "the prompt adds.",
                    child,
                )
            module = modules.get(child.tag)
            if module is None:
                raise self._error(
                    f"{where[0].upper()}{where[1:]} has no module '{child.tag}'. "
                    + (f"Modules: {', '.join(modules)}." if modules else "It has none.")
                    + (_where_it_is(child.tag, around) or did_you_mean(child.tag, modules)),
                    child,
                )
            group = unions.get(child.tag, child.tag)
            if group in taken:
                other = taken[group]
                why = (
                    f"Module '{other}' is imported twice."
                    if other == child.tag
                    else f"Modules '{other}' and '{child.tag}' are in one union; import one."
                )
                raise self._error(why, child)
            taken[group] = child.tag
            parts.append(self._import(child, module))
        return tuple(parts)

    def _import(self, element: Element, module: Module) -> Import:
        parameters = [
            parameter.name
            for parameter in named(module.parts)
            if isinstance(parameter, ModuleParameter)
        ]
        for name in element.attributes:
            if name not in parameters:
                said = unknown("parameter", name, parameters, of=f"module '{module.name}'")
                raise self._error(said, element)
        parts = self._parts(element, module.parts, f"module '{module.name}'")
        return Import(module, dict(element.attributes), parts, element.place)

    def _said(self, element: Element) -> New:
        if element.attributes:
            raise self._error(f"<{element.tag}> has no attributes.", element)
        texts = [child.text for child in element.children if isinstance(child, Words)]
        if len(texts) < len(element.children):
            raise self._error(
                f"<{element.tag}> in a prompt holds text and nothing else. Import modules outside "
                "it.",
                element,
            )
        return New(tidy("".join(texts)).strip("\n"), ROLES[element.tag])

    def _error(self, message: str, element: Element) -> MarkupError:
        return MarkupError(message, self._text, *element.place)


def _union_of(parts: tuple[Part, ...]) -> Iterator[tuple[str, str]]:
    """For each module of a union, the union's first module."""
    for part in parts:
        match part:
            case Union(modules):
                yield from ((module.name, modules[0].name) for module in modules)
            case Message(_, inner):
                yield from _union_of(inner)
            case LooseText() | ModuleParameter() | Module():
                pass


def _where_it_is(name: str, around: Sequence[Part]) -> str:
    """How to import a module that is in another one; empty if there is none of this name."""
    todo: deque[tuple[tuple[str, ...], Module | ModuleParameter]] = deque()
    todo.extend(((), part) for part in named(tuple(around)))
    while todo:
        path, part = todo.popleft()
        if not isinstance(part, Module):
            continue
        if part.name == name and path:
            opened = "".join(f"<{outer}>" for outer in path)
            closed = "".join(f"</{outer}>" for outer in reversed(path))
            return f" '{name}' is in '{path[-1]}': write {opened}<{name}/>{closed}."
        todo.extend(((*path, part.name), inner) for inner in named(part.parts))
    return ""


@dataclass(frozen=True, slots=True)
class PromptContents:
    """Imports by module name, and new text by where it stands.

    first: before the first import. after: after each import, up to the next. last: after the last
    import, or all of it if there is none.
    """

    imports: Mapping[str, Import] = field(default_factory=dict)
    first: Sequence[New] = ()
    after: Mapping[str, Sequence[New]] = field(default_factory=dict)
    last: Sequence[New] = ()

    @classmethod
    def of(cls, parts: Sequence[PromptPart]) -> PromptContents:
        """From what stands in a prompt or in an imported module."""
        imports: dict[str, Import] = {}
        groups: list[list[New]] = [[]]
        for part in parts:
            match part:
                case Import(module):
                    imports[module.name] = part
                    groups.append([])
                case New():
                    groups[-1].append(part)
        if not imports:
            return cls(last=groups[0])
        between = dict(zip(imports, groups[1:-1], strict=False))
        return cls(imports, groups[0], between, groups[-1])

    def before(self, name: str) -> Sequence[New]:
        """New text that stands right before an import: before the first one."""
        return self.first if next(iter(self.imports), None) == name else ()
