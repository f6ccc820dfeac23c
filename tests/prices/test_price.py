"""Prices as data: what a price may say, and which one holds for a model as it is named."""

from __future__ import annotations

import dataclasses
import json
import math
import tomllib
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from relquery.cli.app import app
from relquery.errors import ConfigError
from relquery.prices.files import as_json, parse, read_file
from relquery.prices.own import own_file, own_prices, store_prices
from relquery.prices.price import Price
from relquery.prices.table import PRICES, all_prices, find_price, known_price
from tests.cases import cases

OPENAI, ANTHROPIC = PRICES["gpt-4o-mini"], PRICES["claude-3.5-sonnet"]


def test_the_papers_prices_are_those_of_section_6_3_and_every_price_has_a_public_source() -> None:
    assert (OPENAI.uncached, OPENAI.read) == (0.15, 0.075)
    assert (ANTHROPIC.uncached, ANTHROPIC.write, ANTHROPIC.read) == (3.0, 3.75, 0.3)
    assert (OPENAI.minimum, ANTHROPIC.minimum) == (1024, 1024)
    for name in PRICES:
        price = find_price(name)
        assert price.name == name
        assert price.date >= "2025-10"
        assert price.source.startswith("https://")
    for maker in ("gpt", "claude", "gemini", "deepseek"):
        assert any(name.startswith(maker) for name in PRICES)


def test_an_unknown_model_is_answered_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"'gpt-4o-mni'.*Did you mean 'gpt-4o-mini'\?"):
        find_price("gpt-4o-mni")


def with_field(price: Price, field: str, value: Any) -> Price:
    return dataclasses.replace(price, **{field: value})


def test_a_figure_that_contradicts_another_is_refused() -> None:
    for field, value in cases(__file__, "openai"):
        with pytest.raises(ConfigError, match=f"{field} of price 'gpt-4o-mini' is {value!r}"):
            with_field(OPENAI, field, value)
    for field, value in [*cases(__file__, "anthropic"), ("uncached", math.inf)]:
        with pytest.raises(ConfigError, match=field):
            with_field(ANTHROPIC, field, value)


def test_bills_and_prices_of_an_hour_and_of_ones_own_are_as_by_hand() -> None:
    sonnet = PRICES["claude-sonnet-5"]
    usd = sonnet.usd(uncached=1_000, written=2_000, read=10_000, output=500)
    assert usd == pytest.approx((1_000 * 2 + 2_000 * 2.5 + 10_000 * 0.2 + 500 * 10) / 1e6)
    price = sonnet.for_an_hour  # which costs twice the input price
    assert (price.write, price.read, price.lifetime_s) == (4.0, 0.2, 3600)
    assert dataclasses.replace(ANTHROPIC, write_1h=None).for_an_hour.write == 6.0
    price = Price("mine", "2026-11-20", "https://example.org", 1.0, 1.0, 0.5, 2.0)
    assert (price.minimum, price.granularity, price.breakpoints) == (0, 1, 0)


def test_a_way_to_a_model_and_its_snapshots_have_the_price_of_the_model() -> None:
    for model, name in cases(__file__, "names"):
        assert known_price(model) is PRICES[name]
    others = ["", "demo", "gpt-5", "gpt-5-mini-audio", "ft:gpt-4o-mini:me", "my-gpt-5-mini"]
    for model in [*others, "openai:"]:
        assert known_price(model) is None


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
    assert store_prices(given) == folder / "config" / "prices.json"
    price = known_price("openai:gpt-4o-mini-2024-07-18")
    assert price is not None
    assert price.minimum == 256
    assert PRICES["gpt-4o-mini"].minimum == 1024
    assert set(all_prices()) == set(PRICES)


def test_more_prices_leave_those_of_other_models(folder: Path) -> None:
    other = MINE.replace("my-model", "other").replace("1.0", "3.0")
    for text in (MINE, other, MINE.replace("1.0", "2.0")):
        store_prices(parse(text, "f"))
    uncached = {name: price.uncached for name, price in own_prices().items()}
    assert uncached == {"my-model": 2.0, "other": 3.0}


def test_a_file_that_is_wrong_is_refused_by_the_name_of_what_is_wrong() -> None:
    for change, to, said in cases(__file__, "files"):
        assert change in MINE
        with pytest.raises(ConfigError) as told:
            parse(MINE.replace(change, to), "f")
        assert said in str(told.value)
    for text in ("", "[]", "{}", "null", "[[1]]"):
        with pytest.raises(ConfigError, match=r"f (has no prices|is not valid JSON)"):
            parse(text, "f", is_json=True)


def test_a_file_that_cannot_be_read_or_written_is_told(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"no\.toml does not exist\. Check its name"):
        read_file(folder / "no.toml")
    (folder / "b.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_file(folder / "b.toml")
    (folder / "config").write_text("a file, not a folder")
    with pytest.raises(ConfigError, match="RELQUERY_CONFIG"):
        store_prices(parse(MINE, "f"))


def test_own_prices_are_in_the_systems_folder(monkeypatch: pytest.MonkeyPatch) -> None:
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
    def run(*words: str) -> Any:
        return CliRunner().invoke(app, ["prices", *words])

    (folder / "mine.toml").write_text(MINE)
    stored = run("--update", str(folder / "mine.toml"))
    assert (stored.exit_code, "Stored 1 price in " in stored.stderr) == (0, True)
    listed = run("openai:my-model", "--format", "json")
    assert json.loads(listed.stdout) == tomllib.loads(MINE)
    failed = run("some-model")
    assert failed.exit_code != 0
    assert isinstance(failed.exception, ConfigError)
    assert "No price is known for 'some-model'" in str(failed.exception)


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
