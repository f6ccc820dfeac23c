"""The text around the fields of each row, and the form in which a field is written."""

from __future__ import annotations

from dataclasses import dataclass
from string import Formatter

from relquery.errors import ConfigError, did_you_mean, type_of

FIELDS = "fields"
_NAMES = ("name", "value")
_LABELLED = "{name}: {value}"


@dataclass(frozen=True, slots=True)
class Template:
    """The parts of a prompt that are the same for all rows.

    Raises ConfigError for a text that is not of this form.
    """

    text: str = "{fields}"
    """The question. `{fields}` stands for the fields, one per line; without it they follow the
    text, after a line break. Write {{ or }} for a brace."""
    system: str = ""
    """The system text; empty for none."""
    field: str = _LABELLED
    """How a field is written, without its line break. `{name}` is the column ("passage" in a bag),
    `{value}` the cell; NULL is empty text. `reorder` counts tokens of the default, in which a
    column without a name is the value alone."""

    def __post_init__(self) -> None:
        for name in ("text", "system", "field"):
            if not isinstance(value := getattr(self, name), str):
                raise ConfigError(f"{name} of the template is {type_of(value)}; it must be text.")
            try:
                value.encode()
            except UnicodeEncodeError as error:
                raise ConfigError(
                    f"{name} of the template is not valid Unicode: {error}. Remove lone surrogates."
                ) from error
        if self.system and not self.system.strip():
            raise ConfigError("system of the template is blank. Write a text, or leave it out.")
        named = [name for _, name in _read(self.text, "template", (FIELDS,)) if name]
        if len(named) > 1:
            raise ConfigError(
                "The template has {fields} twice, but fields are sent once. Keep one."
            )
        if "value" not in (name for _, name in _read(self.field, "field", _NAMES)):
            raise ConfigError(
                f"The field {self.field!r} does not have {{value}}, so cells would be lost. "
                "Write it where the cell goes."
            )

    @classmethod
    def of(cls, given: object) -> Template:
        """A template, or its text."""
        if isinstance(given, Template):
            return given
        if isinstance(given, str):
            return cls(given)
        raise ConfigError(f"template is {type_of(given)}; it must be text or an rq.Template.")

    @property
    def head(self) -> str:
        """The text before the fields."""
        before, name = _read(self.text, "template", (FIELDS,))[0]
        if name or not before or before.endswith("\n"):
            return before
        return f"{before}\n"

    @property
    def tail(self) -> str:
        """The text after the line break of the last field."""
        _, *after = _read(self.text, "template", (FIELDS,))
        return "".join(text for text, _ in after).removeprefix("\n")

    @property
    def prefix(self) -> str:
        """The text that all prompts begin with. Give it to `reorder` as `prefix`."""
        return self.system + self.head

    def line(self, name: str, value: str) -> str:
        """A field as written, with its line break."""
        if self.field == _LABELLED:
            return f"{name}: {value}\n" if name else f"{value}\n"
        parts = _read(self.field, "field", _NAMES)
        filled = {"name": name, "value": value, None: ""}
        return "".join(text + filled[key] for text, key in parts) + "\n"


def _read(text: str, what: str, known: tuple[str, ...]) -> list[tuple[str, str | None]]:
    """Literal texts, each with the name in the braces after it, or None at the end.

    Neighbouring literals are joined. Raises ConfigError.
    """
    names = " and ".join(f"{{{name}}}" for name in known)
    try:
        parsed = list(Formatter().parse(text))
    except ValueError as error:
        raise ConfigError(
            f"The {what} {text!r} has a single brace: {error}. Double each brace that is not part "
            f"of {names}: {{{{ or }}}}."
        ) from error
    read: list[tuple[str, str | None]] = []
    before = ""
    for literal, name, form, conversion in parsed:
        before += literal
        if name is None:
            continue
        if name not in known or form or conversion:
            written = name + (f"!{conversion}" if conversion else "") + (f":{form}" if form else "")
            hint = "" if name in known else did_you_mean(name, known)
            raise ConfigError(
                f"The {what} has {{{written}}}, but it can only have {names}. Single columns "
                f"cannot be named; {{fields}} has all of them. For braces, write "
                f"{{{{{written}}}}}.{hint}"
            )
        read.append((before, name))
        before = ""
    return [*read, (before, None)] if before or not read else read
