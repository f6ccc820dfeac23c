"""Commands whose options are the fields of a dataclass, options of several commands, and exit
codes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Annotated, Any, ClassVar, get_type_hints

import typer

from relquery.errors import ConfigError

ERROR, ROWS_LOST, PENDING, INTERRUPTED = 1, 3, 4, 130
"""Exit codes, besides 0 for done and 2 for usage that typer refuses."""
PANEL = "PANEL"
"""The class variable that names the panel of the help in which the options of a class stand."""
_KINDS = {"option": typer.Option, "argument": typer.Argument}
"""By the key of a field's metadata: names, help and more."""


def option(help: str, *names: str, default: Any = None, **more: Any) -> Any:
    """A field that is an option. names: `--name` after the field, if none are given."""
    return field(default=default, metadata={"option": (names, help, more)})


def argument(help: str, **more: Any) -> Any:
    """A field that is an argument, which must be given unless a default is."""
    given = {"default": more.pop("default")} if "default" in more else {}
    return field(**given, metadata={"argument": ((), help, more)})


def command_of(options: type[Any]) -> Callable[..., None]:
    """A command whose arguments and options are the fields of a dataclass, which it then calls."""

    def run(**given: Any) -> None:
        options(**given)()

    hints = get_type_hints(options)
    panels = {
        name: getattr(base, PANEL, None) for base in options.__mro__ for name in _own_fields(base)
    }
    shape = inspect.signature(options)
    parameters = []
    for parameter in shape.parameters.values():
        kind = hints[parameter.name]
        metadata = options.__dataclass_fields__[parameter.name].metadata
        for which, (names, help, more) in metadata.items():
            panel = {"rich_help_panel": panels[parameter.name]} | more
            kind = Annotated[kind, _KINDS[which](*names, help=help, **panel)]
        parameters.append(parameter.replace(annotation=kind))
    run.__signature__ = shape.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__doc__ = options.__doc__
    return run


def pairs(option: str, given: Sequence[str] | None, example: str) -> dict[str, str]:
    """What an option says that is given as NAME=VALUE, several times. Raises ConfigError."""
    by_name: dict[str, str] = {}
    for each in given or ():
        name, equals, value = each.partition("=")
        if not equals or not name.strip() or name in by_name:
            raise ConfigError(
                f"{option} is {each!r}; write NAME=..., each NAME once, e.g. {option} {example}."
            )
        by_name[name] = value
    return by_name


class OutputFormat(Enum):
    """The form in which an overview is printed."""

    TABLE = "table"
    JSON = "json"


def _own_fields(kind: type) -> list[str]:
    return list(vars(kind).get("__annotations__", ()))


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """Options of the engine on this machine."""

    PANEL: ClassVar[str | None] = "Engine"

    cache_tokens: int | None = option("Capacity of the KV cache in tokens.")
    cost: str | None = option(
        "What steps cost (`relquery calibrate`), needed to estimate seconds.",
        metavar="NAME|FILE.json",
    )
    dtype: str | None = option(
        "What is computed in: float32, bfloat16, float16, or int8 for weights in 4 or 8 bits."
    )
    quantize: str | None = option(
        "int8 or int4: round weights to so many bits when they are loaded."
    )
    kv_cache_dtype: str | None = option(
        "int8: keep keys and values in 8 bits, so that the cache holds more tokens."
    )

    def of_engine(self) -> dict[str, Any]:
        """Those that are given."""
        given = {each.name: getattr(self, each.name) for each in fields(EngineOptions)}
        return {name: value for name, value in given.items() if value is not None}
