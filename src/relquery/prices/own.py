"""The user's own prices, in a file of their configuration folder. They win over those shipped."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from relquery.errors import ConfigError
from relquery.prices.files import as_json, read_file
from relquery.prices.price import Price

_FILE = "prices.json"


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
