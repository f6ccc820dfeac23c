"""Prices in files: TOML or JSON, one table per model, with the fields of Price. The user's own are
in a file of their configuration folder, and win over those shipped.
"""

from __future__ import annotations

import json
import os
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, Field, asdict, fields
from pathlib import Path
from typing import Any

from relquery.errors import ConfigError, type_of, unknown
from relquery.prices.price import Price, Tier

_OF_PRICE: dict[str, Field[Any]] = {
    setting.name: setting for setting in fields(Price) if setting.name != "name"
}
_OF_TIER: dict[str, Field[Any]] = {setting.name: setting for setting in fields(Tier)}
_TEXTS = ("date", "source", "until")
_FLAGS = ("reasoning", "knows_minimum")
_REMEDY = (
    "Give a .toml or .json file with a table for each model, as `relquery prices --format json` "
    "prints them."
)
_FILE = "prices.json"
_COUNTS = ("minimum", "granularity", "breakpoints", "above")


def read_file(path: Path) -> dict[str, Price]:
    """The prices in a file, by model. Raises ConfigError for whatever is wrong with it."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise ConfigError(f"The file of prices {path} does not exist. Check its name.") from error
    except (OSError, UnicodeDecodeError) as error:
        said = f"The prices in {path} cannot be read: {error}. Check the file."
        raise ConfigError(said) from error
    return parse(text, str(path), is_json=path.suffix.lower() == ".json")


def parse(text: str, where: str, *, is_json: bool = False) -> dict[str, Price]:
    """The prices in a text, by model. where: what to call it in messages. Raises ConfigError."""
    try:
        given = json.loads(text) if is_json else tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        kind = "JSON" if is_json else "TOML"
        raise ConfigError(f"{where} is not valid {kind}: {error}. {_REMEDY}") from error
    if not isinstance(given, dict) or not given:
        raise ConfigError(f"{where} has no prices. {_REMEDY}")
    return {name: _price(name, table, where) for name, table in given.items()}


def as_json(prices: Mapping[str, Price]) -> dict[str, dict[str, Any]]:
    """Prices as `parse` reads them; fields that say nothing are left out."""
    return {name: _told(price) for name, price in prices.items()}


def _told(price: Price) -> dict[str, Any]:
    values = {name: getattr(price, name) for name in _OF_PRICE}
    said = {name: value for name, value in values.items() if value != _OF_PRICE[name].default}
    if price.tiers:
        tiers = (asdict(tier).items() for tier in price.tiers)
        said["tiers"] = [
            {name: value for name, value in tier if value is not None} for tier in tiers
        ]
    return said


def _price(name: str, table: object, where: str) -> Price:
    if not isinstance(table, dict):
        raise ConfigError(f"{where}: '{name}' is {type_of(table)}; it must be a table of prices.")
    tiers = table.get("tiers", [])
    if not isinstance(tiers, list) or not all(isinstance(tier, dict) for tier in tiers):
        raise ConfigError(f"{where}: tiers of '{name}' is {tiers!r}; it must be a list of tables.")
    _check_fields({**table, "tiers": ()}, _OF_PRICE, name, where)
    for tier in tiers:
        _check_fields(tier, _OF_TIER, name, where)
    try:
        return Price(name, **{**table, "tiers": tuple(Tier(**tier) for tier in tiers)})
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None


def _check_fields(
    table: Mapping[str, object], known: Mapping[str, Field[Any]], name: str, where: str
) -> None:
    for field in table:
        if field not in known:
            raise ConfigError(f"{where}: " + unknown("field", field, known, of=f"'{name}'"))
    for field, about in known.items():
        if field in table:
            _check(field, table[field], name, where)
        elif about.default is MISSING:
            raise ConfigError(f"{where}: '{name}' has no {field}. Give it.")


def _check(field: str, value: object, name: str, where: str) -> None:
    if field == "tiers":
        return
    if field in _TEXTS:
        right, expected = isinstance(value, str) and value.strip() != "", "a text"
    elif field in _FLAGS:
        right, expected = isinstance(value, bool), "true or false"
    else:
        kinds, expected = (
            (int, "a whole number") if field in _COUNTS else ((int, float), "a number")
        )
        right = isinstance(value, kinds) and not isinstance(value, bool)
    if not right:
        raise ConfigError(f"{where}: {field} of '{name}' is {value!r}; it must be {expected}.")


def own_file(environment: Mapping[str, str] | None = None, platform: str = sys.platform) -> Path:
    """Where the user's prices are: in the folder RELQUERY_CONFIG, or in that of the system.

    Raises ConfigError without a home folder.
    """
    given = os.environ if environment is None else environment
    if given.get("RELQUERY_CONFIG"):
        return Path(given["RELQUERY_CONFIG"]) / _FILE
    try:
        return _of_system(given, platform) / "relquery" / _FILE
    except RuntimeError as error:
        raise ConfigError(
            f"There is no folder for your own prices: {error} Set RELQUERY_CONFIG to a folder."
        ) from error


def _of_system(environment: Mapping[str, str], platform: str) -> Path:
    if Path(environment.get("XDG_CONFIG_HOME", "")).is_absolute():
        return Path(environment["XDG_CONFIG_HOME"])
    if platform == "win32":
        roaming = environment.get("APPDATA")
        return Path(roaming) if roaming else Path.home() / "AppData" / "Roaming"
    if platform == "darwin":
        return Path.home() / "Library" / "Application Support"
    return Path.home() / ".config"


def own_prices(path: Path | None = None) -> dict[str, Price]:
    """The prices that the user has stored, by model; empty without a file.

    Raises ConfigError if the file is wrong.
    """
    try:
        path = own_file() if path is None else path
        is_there = path.is_file()
    except (ConfigError, OSError):  # no home folder, or none that may be read: no prices
        return {}
    return read_file(path) if is_there else {}


def store_prices(prices: Mapping[str, Price], path: Path | None = None) -> Path:
    """Add prices to the user's own, in place of older ones of the same models.

    Returns the file. Raises ConfigError if it cannot be written, or what stands in it not be read.
    """
    path = own_file() if path is None else path
    all_prices = own_prices(path) | dict(prices)
    draft = path.with_suffix(".new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(json.dumps(as_json(all_prices), indent=2) + "\n", encoding="utf-8")
        draft.replace(path)
    except OSError as error:
        raise ConfigError(
            f"The prices cannot be stored in {path}: {error}. Set RELQUERY_CONFIG to a folder that "
            "can be written."
        ) from error
    return path
