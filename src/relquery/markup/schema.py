"""Schemas: prompt modules, and the text around them (paper 001, §3.2)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from relquery.errors import MarkupError, PromptWarning, did_you_mean, type_of, unknown, warn
from relquery.markup.reader import Element, SourcePosition, Words, find, read, read_text
from relquery.prompt import SPEAKERS, Role


@dataclass(frozen=True, slots=True)
class LooseText:
    """Text that stands in no module of its own. It belongs to the module around it."""

    content: str


@dataclass(frozen=True, slots=True)
class ModuleParameter:
    """A place in a module that an argument may take.

    length: tokens that an argument may have. scaffold: text that stands there while the module is
    encoded; empty for the tokenizer's unknown token, `length` times.
    """

    name: str
    length: int
    scaffold: str
    place: SourcePosition


@dataclass(frozen=True, slots=True)
class Module:
    """Text that is encoded by itself and can be imported.

    is_cached: False if its states are computed anew for every prompt. priority: the higher, the
    longer its states are kept.
    """

    name: str
    parts: tuple[Part, ...]
    is_cached: bool
    priority: int
    place: SourcePosition


@dataclass(frozen=True, slots=True)
class Union:
    """Modules of which a prompt imports one at most. They begin at the same position.

    scaffold: name of the module that stands there while what is around the union is encoded; empty
    for none.
    """

    modules: tuple[Module, ...]
    scaffold: str
    place: SourcePosition


@dataclass(frozen=True, slots=True)
class Message:
    """A message of the system, the user or the assistant. The model's chat template marks it."""

    role: Role
    parts: tuple[Part, ...]
    place: SourcePosition


Part: TypeAlias = "LooseText | ModuleParameter | Module | Union | Message"


def named(parts: tuple[Part, ...]) -> Iterator[Module | ModuleParameter]:
    """What can be imported or given where these parts are: not what is inside a module."""
    for part in parts:
        match part:
            case Module() | ModuleParameter():
                yield part
            case Union(modules):
                yield from modules
            case Message(_, inner):
                yield from named(inner)


def messages(parts: Sequence[Part]) -> list[Message]:
    """The messages of a schema. What stands outside them is what the user says."""
    written: list[Message] = []
    loose: list[Part] = []
    for part in (*parts, None):
        if part is not None and not isinstance(part, Message):
            loose.append(part)
            continue
        if loose:
            written.append(Message(Role.USER, tuple(loose), _NOWHERE))
            loose = []
        if part is not None:
            written.append(part)
    return written


_NOWHERE = SourcePosition(0, 0)


ROLES = {role.value: role for role in SPEAKERS}
SPACE = "xml:space"
"""XML's own attribute: "preserve" keeps all line breaks and spaces as they are written."""
ATTRIBUTES: dict[str, tuple[str, ...]] = {
    "schema": ("name", SPACE),
    "module": ("name", "src", "cache", "priority", SPACE),
    "union": ("scaffold",),
    "param": ("name", "len", "length", "scaffold"),
    "parameter": ("name", "len", "length", "scaffold"),
    **dict.fromkeys(ROLES, ()),
}
RESERVED = {*ATTRIBUTES, "prompt"}
_NAME = re.compile(r"[A-Za-z_][\w.-]*")
_EDGES = re.compile(r"\A\s*\n\s*|\s*\n\s*\Z")


def define(text: str, folder: Path | None) -> tuple[str, tuple[Part, ...]]:
    """The name and the parts of the schema that a text defines.

    folder: where `src=` finds files. Raises MarkupError.
    """
    return _Definition(text, folder).schema()


def tidy(text: str) -> str:
    """Text between tags, without the line breaks and indentation next to the tags.

    A line break there becomes one, so that words do not join; text of nothing else vanishes.
    """
    return "" if text.isspace() and "\n" in text else _EDGES.sub("\n", text)


@dataclass(frozen=True, slots=True)
class _Inside:
    """The place of a part: in a module, in a message, where space is kept."""

    module: bool = False
    message: bool = False
    exact: bool = False


class _Definition:
    """One schema in the making."""

    def __init__(self, text: str, folder: Path | None) -> None:
        self._text, self._folder = text, folder
        self._has_told = False

    def schema(self) -> tuple[str, tuple[Part, ...]]:
        root = read(self._text)
        if root.tag != "schema":
            raise self._error(f"A schema begins with <schema name=...>, not <{root.tag}>.", root)
        self._check_attributes(root)
        parts = self._parts(root, _Inside(exact=self._is_exact(root, default=False)))
        self._check_names(parts, root)
        return self._name(root), parts

    def _parts(self, element: Element, inside: _Inside) -> tuple[Part, ...]:
        return tuple(self._each_part(element, inside))

    def _each_part(self, element: Element, inside: _Inside) -> Iterator[Part]:
        for child in element.children:
            if isinstance(child, Words):
                # Between the members of a union there is nothing to keep.
                is_exact = inside.exact and element.tag != "union"
                if content := child.text if is_exact else tidy(child.text):
                    yield LooseText(content)
                continue
            self._check_attributes(child)
            match child.tag:
                case "module":
                    yield self._module(child, inside)
                case "union":
                    yield self._union(child, inside)
                case "param" | "parameter":
                    if not inside.module:
                        raise self._error("A parameter must be in a module.", child)
                    yield self._parameter(child)
                case tag if tag in ROLES:
                    if inside.message:
                        raise self._error(f"<{tag}> is inside another message.", child)
                    if inside.module:
                        self._note_message(tag, child)
                        yield from self._parts(child, inside)
                        continue
                    parts = self._parts(child, replace(inside, message=True))
                    yield Message(ROLES[tag], parts, child.place)
                case tag:
                    raise self._error(f"<{tag}> must not be inside <{element.tag}>.", child)

    def _note_message(self, tag: str, element: Element) -> None:
        """Say once that a message in a module has no marks of its own."""
        if not self._has_told:
            self._has_told = True
            warn(
                f"<{tag}> is inside a module (line {element.place.line}), so its text is the "
                f"module's, without the marks of a message. Put the module inside <{tag}>, since "
                "the chat template writes them around whole messages.",
                PromptWarning,
            )

    def _module(self, element: Element, inside: _Inside) -> Module:
        exact = self._is_exact(element, default=inside.exact)
        parts = self._parts(element, replace(inside, module=True, exact=exact))
        if "src" in element.attributes:
            if parts:
                raise self._error("A module with src= must not have text of its own.", element)
            parts = (LooseText(self._file(element)),)
        self._check_names(parts, element)
        cache = element.attributes.get("cache", "true")
        if cache not in ("true", "false"):
            raise self._error(f"cache is '{cache}'; it must be 'true' or 'false'.", element)
        return Module(
            self._name(element),
            parts,
            cache == "true",
            self._integer(element, "priority", least=None, default=0),
            element.place,
        )

    def _union(self, element: Element, inside: _Inside) -> Union:
        modules = []
        for part in self._parts(element, inside):
            if not isinstance(part, Module):
                raise self._error("A union holds modules and nothing else.", element)
            modules.append(part)
        if not modules:
            raise self._error("A union must hold at least one module.", element)
        scaffold = element.attributes.get("scaffold", "")
        names = [module.name for module in modules]
        if scaffold and scaffold not in names:
            said = unknown("module", scaffold, names, of="this union")
            raise self._error(f"scaffold: {said}", element)
        return Union(tuple(modules), scaffold, element.place)

    def _parameter(self, element: Element) -> ModuleParameter:
        if element.children:
            raise self._error("A parameter must be empty; its argument is in the prompt.", element)
        given = [name for name in ("len", "length") if name in element.attributes]
        if len(given) == 2:
            raise self._error("A parameter has both len and length; give one of them.", element)
        if not given:
            raise self._error("A parameter needs its length in tokens: len='10'.", element)
        length = self._integer(element, given[0], least=1, default=1)
        scaffold = element.attributes.get("scaffold", "")
        return ModuleParameter(self._name(element), length, scaffold, element.place)

    def _file(self, element: Element) -> str:
        if self._folder is None:
            raise self._error("src= needs the folder of the schema; use Schema.load.", element)
        try:
            return read_text(find(self._folder, element.attributes["src"]))
        except (ValueError, MarkupError) as error:
            raise self._error(str(error), element) from error

    def _is_exact(self, element: Element, *, default: bool) -> bool:
        given = element.attributes.get(SPACE, "preserve" if default else "default")
        if given not in ("default", "preserve"):
            raise self._error(f"{SPACE} is '{given}'; it must be 'default' or 'preserve'.", element)
        return given == "preserve"

    def _integer(self, element: Element, name: str, *, least: int | None, default: int) -> int:
        given = element.attributes.get(name, str(default))
        if re.fullmatch(r"-?\d{10,}", given, re.ASCII):
            raise self._error(f"{name} is {given[:20]}; it must be below 1,000,000,000.", element)
        is_whole = re.fullmatch(r"-?\d{1,9}", given, re.ASCII) is not None
        if not is_whole or (least is not None and int(given) < least):
            enough = "" if least is None else f" of at least {least}"
            raise self._error(f"{name} is '{given}'; it must be a whole number{enough}.", element)
        return int(given)

    def _name(self, element: Element) -> str:
        name = element.attributes.get("name", "")
        if not name:
            raise self._error(f"<{element.tag}> needs a name: name='...'.", element)
        if element.tag != "schema" and not _NAME.fullmatch(name):
            raise self._error(
                f"The name '{name}' cannot be a tag in a prompt. Use letters, digits, '.', '-' and "
                "'_', beginning with a letter or '_'.",
                element,
            )
        if name in RESERVED and element.tag == "module":
            raise self._error(f"A module cannot have the name of the tag <{name}>.", element)
        return name

    def _check_attributes(self, element: Element) -> None:
        known = ATTRIBUTES.get(element.tag)
        if known is None:
            tags = [tag for tag in ATTRIBUTES if tag != "schema"]
            raise self._error(
                f"A schema has no <{element.tag}>. Tags: {', '.join(tags)}."
                + did_you_mean(element.tag, tags),
                element,
            )
        for name in element.attributes:
            if name not in known:
                said = unknown("attribute", name, known, of=f"<{element.tag}>")
                raise self._error(said, element)

    def _check_names(self, parts: Sequence[Part], element: Element) -> None:
        seen: set[str] = set()
        for part in named(tuple(parts)):
            if part.name in seen:
                raise MarkupError(
                    f"<{element.tag}> has two things named '{part.name}'. Rename one of them.",
                    self._text,
                    *part.place,
                )
            seen.add(part.name)

    def _error(self, message: str, element: Element) -> MarkupError:
        return MarkupError(message, self._text, *element.place)


@dataclass(frozen=True, slots=True)
class Schema:
    """Modules, and the text around them, which every prompt has.

    source: as it was written, for messages.
    """

    name: str
    parts: tuple[Part, ...]
    source: str

    @classmethod
    def parse(cls, text: str, folder: str | Path | None = None) -> Schema:
        """A schema from its text. folder: where `src=` finds files. Raises MarkupError."""
        if not isinstance(text, str):
            raise MarkupError(f"The schema's text is {type_of(text)}; it must be a string.")
        name, parts = define(text, None if folder is None else Path(folder))
        return cls(name, parts, text)

    @classmethod
    def load(cls, path: str | Path) -> Schema:
        """A schema from a file, in whose folder `src=` finds others.

        Raises MarkupError if the file cannot be read or is not a schema.
        """
        if not isinstance(path, (str, Path)):
            raise MarkupError(f"The schema's file is {type_of(path)}; it must be a path.")
        file = Path(path)
        return cls.parse(read_text(file), file.parent)

    def modules(self) -> Iterator[tuple[tuple[str, ...], Module]]:
        """All modules in document order, with the names of the modules around each and its own."""
        yield from _modules(self.parts, ())


def _modules(
    parts: tuple[Part, ...], path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], Module]]:
    for part in parts:
        match part:
            case Module(name, inner):
                yield (*path, name), part
                yield from _modules(inner, (*path, name))
            case Union(modules):
                yield from _modules(modules, path)
            case Message(_, inner):
                yield from _modules(inner, path)
