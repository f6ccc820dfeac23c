"""Prices of one's own: files that are read, refused and stored, and the command for it."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from relquery.cli.app import app
from relquery.errors import ConfigError
from relquery.prices.files import as_json, parse, read_file
from relquery.prices.own import own_file, own_prices, store_prices
from relquery.prices.table import PRICES, all_prices, known_price

MINE = """
["my-model"]
date = "2026-11-20"
source = "https://example.org/prices"
uncached = 1.0
write = 1.0
read = 0.5
output = 2.0
minimum = 256
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RELQUERY_CONFIG", str(tmp_path / "config"))
    return tmp_path


def test_prices_survive_being_written_and_read() -> None:
    assert parse(json.dumps(as_json(PRICES)), "f", is_json=True) == dict(PRICES)


def test_own_prices_win_over_those_shipped(folder: Path) -> None:
    given = parse(MINE.replace("my-model", "gpt-4o-mini"), "f")
    stored = store_prices(given)
    assert stored == folder / "config" / "prices.json"
    price = known_price("openai:gpt-4o-mini-2024-07-18")
    assert price is not None
    assert price.minimum == 256
    assert PRICES["gpt-4o-mini"].minimum == 1024
    assert set(all_prices()) == set(PRICES)


def test_more_prices_leave_those_of_other_models(folder: Path) -> None:
    store_prices(parse(MINE, "f"))
    store_prices(parse(MINE.replace("my-model", "other").replace("1.0", "3.0"), "f"))
    store_prices(parse(MINE.replace("1.0", "2.0"), "f"))
    assert {name: price.uncached for name, price in own_prices().items()} == {
        "my-model": 2.0,
        "other": 3.0,
    }


def test_a_file_that_is_wrong_is_refused_by_the_name_of_what_is_wrong() -> None:
    for change, to, said in (
        ("uncached = 1.0\n", "", "'my-model' has no uncached. Give it."),
        ("minimum", "minimun", "The field 'minimun' of 'my-model' is not known"),
        ("output = 2.0", 'output = "2"', "output of 'my-model' is '2'; it must be a number."),
        ("output = 2.0", "output = true", "output of 'my-model' is True; it must be a number."),
        ("output = 2.0", "output = nan", "output of price 'my-model' is nan"),
        ("output = 2.0", "output = inf", "output of price 'my-model' is inf"),
        ("read = 0.5", "read = 1.5", "read of price 'my-model' is 1.5; it must be between 0"),
        ("minimum = 256", "minimum = 2.5", "minimum of 'my-model' is 2.5; it must be a whole"),
        ("minimum = 256", "reasoning = 1", "reasoning of 'my-model' is 1; it must be true or"),
        ('"2026-11-20"', '"November"', "date of price 'my-model' is 'November'"),
        ('"2026-11-20"', "2026-11-20", "date of 'my-model' is datetime.date"),
        ('["my-model"]', "", "'date' is a str; it must be a table of prices."),
        ('["my-model"]', '["my-model"', "f is not valid TOML"),
        ('["my-model"]', "model,usd", "Give a .toml or .json file with a table for each model"),
        ("write = 1.0", "write = 1.25", "it must be 1, like uncached, as an automatic cache"),
    ):
        assert change in MINE
        with pytest.raises(ConfigError) as told:
            parse(MINE.replace(change, to), "f")
        assert said in str(told.value)
    for text in ("", "[]", "{}", "null", "[[1]]"):
        with pytest.raises(ConfigError, match=r"f (has no prices|is not valid JSON)"):
            parse(text, "f", is_json=True)


def test_a_file_that_is_missing_or_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no\.toml does not exist\. Check its name"):
        read_file(tmp_path / "no.toml")
    (tmp_path / "b.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_file(tmp_path / "b.toml")


def test_nothing_is_stored_if_the_folder_cannot_be_written(folder: Path) -> None:
    (folder / "config").write_text("a file, not a folder")
    with pytest.raises(ConfigError, match="RELQUERY_CONFIG"):
        store_prices(parse(MINE, "f"))


def test_own_prices_are_in_the_systems_folder_for_settings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Path, "home", lambda: Path("/home/me"))
    mac = "/home/me/Library/Application Support/relquery/prices.json"
    for environment, platform, expected in (
        ({"RELQUERY_CONFIG": "/mine"}, "linux", "/mine/prices.json"),
        ({"XDG_CONFIG_HOME": "/xdg"}, "linux", "/xdg/relquery/prices.json"),
        ({"XDG_CONFIG_HOME": "relative"}, "linux", "/home/me/.config/relquery/prices.json"),
        ({"APPDATA": "/roaming"}, "win32", "/roaming/relquery/prices.json"),
        ({}, "darwin", mac),
    ):
        assert own_file(environment, platform) == Path(expected)


def test_the_command_stores_prices_and_lists_them(folder: Path) -> None:
    file = folder / "mine.toml"
    file.write_text(MINE)
    stored = CliRunner().invoke(app, ["prices", "--update", str(file)])
    assert stored.exit_code == 0
    assert "Stored 1 price in " in stored.stderr
    listed = CliRunner().invoke(app, ["prices", "openai:my-model", "--format", "json"])
    assert json.loads(listed.stdout) == tomllib.loads(MINE)


def test_what_the_command_prints_as_json_can_be_stored(folder: Path) -> None:
    printed = CliRunner().invoke(app, ["prices", "-f", "json"]).stdout
    (folder / "all.json").write_text(printed)
    assert CliRunner().invoke(app, ["prices", "--update", str(folder / "all.json")]).exit_code == 0
    assert own_prices() == dict(PRICES)


def test_no_line_is_wider_than_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for width in (80, 140):
        monkeypatch.setenv("COLUMNS", str(width))
        shown = CliRunner().invoke(app, ["prices"]).stdout
        assert all(name in shown for name in PRICES)
        assert max(map(len, shown.splitlines())) <= width


def test_a_model_without_a_price_is_told_so() -> None:
    ran = CliRunner().invoke(app, ["prices", "some-model"])
    assert ran.exit_code != 0
    assert isinstance(ran.exception, ConfigError)
    assert "No price is known for 'some-model'" in str(ran.exception)
