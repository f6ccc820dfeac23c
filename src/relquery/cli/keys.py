"""`relquery keys`: who may ask a server."""

from __future__ import annotations

from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from relquery.cli.terminal import errors_console, say, table
from relquery.errors import ConfigError, unknown
from relquery.serve.auth import (
    Key,
    hash_of,
    instant,
    locked,
    new_key,
    read_keys,
    weights_of,
    write_keys,
)

keys = typer.Typer(
    help="""Keys of those who may ask a server.

    [bold]Example[/bold]

    relquery keys add alice --file keys.json

    relquery serve --keys keys.json
    """,
    no_args_is_help=True,
    rich_markup_mode="rich",
)
_File = Annotated[
    Path, typer.Option("--file", "-f", metavar="FILE", help="The file that has the keys' hashes.")
]
_Name = Annotated[str, typer.Argument(help="Of the key.")]
_USUAL = Path("keys.json")


@keys.command()
def add(
    name: _Name,
    file: _File = _USUAL,
    tenant: Annotated[
        str | None,
        typer.Option(help="Whose states and shares it uses; keys may share one. Default: NAME."),
    ] = None,
    weight: Annotated[
        float | None,
        typer.Option(
            help="The tenant's share of the engine (others have 1). Read when a server starts."
        ),
    ] = None,
    requests_per_minute: Annotated[int | None, typer.Option(help="Default: no limit.")] = None,
    tokens_per_minute: Annotated[
        int | None, typer.Option(help="Of prompts and answers. Default: no limit.")
    ] = None,
    expires: Annotated[
        str | None,
        typer.Option(metavar="DATE", help="When it ends: 2031-12-31 (0:00 UTC), or an ISO time."),
    ] = None,
    operator: Annotated[
        bool, typer.Option("--operator", help="It may read /metrics, which shows all tenants.")
    ] = False,
) -> None:
    """Make a key and print it. It is not stored and cannot be shown again.

    [bold]Examples[/bold]

    relquery keys add alice --file keys.json

    relquery keys add nightly --tenant reports --weight 0.5 --tokens-per-minute 100000
    """
    secret = new_key()
    made = Key(
        name=name,
        tenant=tenant or name,
        hash=hash_of(secret),
        hint=secret[:7],
        weight=weight,
        requests_per_minute=requests_per_minute,
        tokens_per_minute=tokens_per_minute,
        expires=None if expires is None else instant(expires).isoformat(),
        operator=operator,
    )
    with locked(file):
        _add(made, file)
    errors_console().print(
        f"The key '{name}' is in {file}. It is shown only now:", markup=False, highlight=False
    )
    typer.echo(secret)


@keys.command("list")
def list_(file: _File = _USUAL) -> None:
    """Show the keys of a file: names, limits and how each begins."""
    known, now = read_keys(file), datetime.now(UTC)
    shown = [each.name for each in fields(Key) if each.name != "hash"]
    columns = {
        name.replace("_", " "): [_text(getattr(key, name)) for key in known] for name in shown
    }
    columns["expires"] = [
        text if key.is_valid(now) else f"{text} (expired)"
        for key, text in zip(known, columns["expires"], strict=True)
    ]
    Console().print(table(columns, words=tuple(columns), lines=True))


@keys.command()
def remove(name: _Name, file: _File = _USUAL) -> None:
    """Remove a key. A running server refuses it within a second."""
    with locked(file):
        known = read_keys(file)
        left = [key for key in known if key.name != name]
        if len(left) == len(known):
            raise ConfigError(unknown("key", name, (key.name for key in known), of=str(file)))
        write_keys(file, left)
    say(f"Removed '{name}' from {file}.")


def _add(made: Key, file: Path) -> None:
    """Raises ConfigError for a name that is taken, or another weight than the tenant's."""
    known = read_keys(file) if file.exists() else ()
    if any(each.name == made.name for each in known):
        raise ConfigError(
            f"{file} has a key '{made.name}'. Choose another name, or remove it first: relquery "
            f"keys remove {made.name} --file {file}"
        )
    weights_of([*known, made])
    write_keys(file, [*known, made])


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else ""
    return "" if value is None else str(value)
