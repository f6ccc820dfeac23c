"""`relquery prices`: what providers charge, and prices of one's own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from relquery.cli.command import OutputFormat
from relquery.cli.terminal import by_rows, fits, in_lines, say, table
from relquery.errors import ConfigError
from relquery.prices.files import as_json, own_prices, read_file, store_prices
from relquery.prices.price import Price
from relquery.prices.table import all_prices, known_price, no_price

_TITLE = "USD per million tokens"
_WORDS = ("model", "longer prompts", "caching", "as of", "until")


def prices(
    models: Annotated[
        list[str] | None,
        typer.Argument(
            help="Models as you name them to --model; all if none is given.", show_default=False
        ),
    ] = None,
    update: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Store the prices of a .toml or .json file as your own. They win over those "
            "shipped.",
        ),
    ] = None,
    form: Annotated[
        OutputFormat, typer.Option("--format", "-f", help="How to print them.")
    ] = OutputFormat.TABLE,
) -> None:
    """List the known prices of providers' models, with the date and page they were read from.

    [bold]Example[/bold]

    relquery prices gpt-5-mini claude-sonnet-5

    relquery prices --format json > prices.json

    relquery prices --update prices.json
    """
    if update is not None:
        given = read_file(update)
        stored = store_prices(given)
        count = f"{len(given)} {'price' if len(given) == 1 else 'prices'}"
        say(f"Stored {count} in {stored}.")
        if not models and form is OutputFormat.TABLE:
            return
    known = all_prices() if not models else dict(map(_found, models))
    if form is OutputFormat.JSON:
        typer.echo(json.dumps(as_json(known), indent=2, ensure_ascii=False))
        return
    console, own = Console(), own_prices()
    columns = by_rows(_cells(price, is_own=name in own) for name, price in known.items())
    figures = {title: cells for title, cells in columns.items() if title != "source"}
    if fits(figures.items(), console.width):
        console.print(table(figures, _TITLE, console.width, _WORDS, whole="model"))
    else:
        console.print(in_lines(columns.items(), _TITLE))


def _found(model: str) -> tuple[str, Price]:
    price = known_price(model)
    if price is None:
        raise ConfigError(no_price(model))
    return price.name, price


def _cells(price: Price, *, is_own: bool) -> dict[str, str]:
    return {
        "model": price.name + (" (own)" if is_own else ""),
        "input": _usd(price.uncached),
        "read": _usd(price.read),
        "write": _usd(price.write),
        "1 h write": _usd(price.write_1h),
        "output": _usd(price.output),
        "longer prompts": " ".join(
            f"> {tier.above:,}: {tier.uncached:g} / {tier.output:g}" for tier in price.tiers
        ),
        "batch": "" if price.batch is None else f"x {price.batch:g}",
        "flex": "" if price.flex is None else f"x {price.flex:g}",
        "least prefix": f"{price.minimum:,}" if price.knows_minimum else "unknown",
        "caching": price.mode,
        "as of": price.date,
        "until": price.until or "",
        "source": price.source,
    }


def _usd(price: float | None) -> str:
    return "" if price is None else f"{price:g}"
