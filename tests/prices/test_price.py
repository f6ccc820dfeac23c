"""Prices as data: what a price may say, and which one holds for a model as it is named."""

from __future__ import annotations

import dataclasses
import json
import math
import subprocess
import sys
import tomllib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest
from genai_prices import Usage, calc_price
from typer.testing import CliRunner

from relquery.cli.app import app
from relquery.errors import ConfigError
from relquery.prices.files import (
    as_json,
    own_file,
    own_prices,
    parse,
    read_file,
    store_prices,
)
from relquery.prices.price import Price
from relquery.prices.table import PRICES, all_prices, find_price, known_price
from tests.cases import cases

OPENAI, ANTHROPIC = PRICES["gpt-4o-mini"], PRICES["claude-3-5-sonnet"]
OCTOBER, DECEMBER = datetime(2026, 10, 20, 12, tzinfo=UTC), datetime(2026, 12, 1, tzinfo=UTC)


def test_the_papers_prices_are_those_of_section_6_3_and_every_price_has_a_public_source() -> None:
    assert (OPENAI.uncached, OPENAI.read) == (0.15, 0.075)
    assert (ANTHROPIC.uncached, ANTHROPIC.write, ANTHROPIC.read) == (3.0, 3.75, 0.3)
    assert (OPENAI.minimum, ANTHROPIC.minimum) == (1024, 1024)
    for name in PRICES:
        price = find_price(name)
        assert price.name == name
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
        price = known_price(model)
        assert price is not None, model
        assert price.name == name
    for (model,) in cases(__file__, "no names"):
        assert known_price(model) is None, model


def test_forty_of_45_current_names_have_a_price() -> None:
    names = [model for (model,) in cases(__file__, "current")]
    assert len(names) == 45
    unknown = [model for model in names if known_price(model) is None]
    assert len(unknown) <= 5, unknown


def test_a_bill_is_that_of_genai_prices_for_any_call_at_any_hour() -> None:
    """Its own arithmetic, of tiers and dates, is the oracle."""
    chance = Random(3)
    for name in chance.sample(sorted(PRICES), 60):
        moment = OCTOBER + timedelta(hours=chance.randint(0, 24 * 120))
        price = known_price(name, moment)
        assert price is not None
        if name == "gpt-6.2-sol":  # ours alone
            continue
        for prompt in (900, 99_999, 100_001, 272_001, 600_000):
            read = chance.randint(0, prompt)
            written = chance.randint(0, prompt - read) if price.breakpoints else 0
            output = chance.randint(0, 9_000)
            used = Usage(
                input_tokens=prompt,
                output_tokens=output,
                cache_read_tokens=read,
                cache_write_tokens=written,
            )
            told = calc_price(used, name, genai_request_timestamp=moment).total_price
            assert price.call_usd(prompt, output, read, written) == pytest.approx(float(told)), name


def test_prices_go_by_prompt_length_hour_long_writes_batch_flex_date_and_time_of_day() -> None:
    haiku = PRICES["claude-haiku-5-5"]
    assert haiku.call_usd(100_000, 1_000) == pytest.approx(0.01 + 0.0005)
    assert haiku.call_usd(100_001, 1_000) == pytest.approx((100_001 * 0.5 + 1_000 * 2.5) / 1e6)
    hour = PRICES["claude-sonnet-5"].call_usd(1_000_000, 0, 0, 1_000_000, 1_000_000)
    assert hour == pytest.approx(4.00)
    assert PRICES["claude-sonnet-5"].call_usd(1_000_000, 0, 0, 1_000_000) == pytest.approx(2.50)
    long = haiku.call_usd(200_000, 0, 0, 200_000, 150_000)
    assert long == pytest.approx((50_000 * 0.625 + 150_000 * 1.00) / 1e6)
    sol = PRICES["gpt-6.1-sol"]
    assert sol.in_batch.call_usd(300_000, 1_000) == pytest.approx((300_000 * 2 + 1_000 * 7.5) / 1e6)
    assert (sol.flex, sol.in_batch.read) == (0.5, 0.05)
    assert OPENAI.in_batch.read == 0.075  # of models before GPT-5, what is read costs as much live
    mixed = haiku.of_prompts([50_000, 150_000])
    assert mixed.uncached == pytest.approx((50_000 * 0.1 + 150_000 * 0.5) / 200_000)
    assert mixed.output == pytest.approx((0.5 + 2.5) / 2)
    for moment, usd, until in ((OCTOBER, 2.0, "2026-11-30"), (DECEMBER, 4.0, None)):
        argon = known_price("gemini-4-argon", moment)
        assert argon is not None
        assert (argon.uncached, argon.until) == (usd, until)
    for hour_of_day, usd, peak in ((7, 0.30, 1.0), (12, 0.15, 2.0)):
        flash = known_price("deepseek-flash", OCTOBER.replace(hour=hour_of_day))
        assert flash is not None
        assert (flash.uncached, flash.peak) == (usd, peak)


def test_a_price_past_its_date_is_used_with_one_warning(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store_prices(parse(MINE + 'until = "2026-11-29"', "f"))
    for _ in range(3):
        price = known_price("my-model", DECEMBER)
        assert price is not None
        assert price.uncached == 1.0
    assert [record.getMessage()[:47] for record in caplog.records] == [
        "The price of 'my-model' held until 2026-11-29, "
    ]


def test_a_price_that_is_not_asked_for_imports_nothing() -> None:
    code = (
        "import sys, relquery, relquery.prices.table as t; t.known_price('demo'); "
        "t.known_price('./models/smollm2'); print('genai_prices' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_the_minimum_is_told_as_unknown_where_no_page_gives_it() -> None:
    opus = PRICES["claude-opus-5-5"]
    assert (opus.minimum, opus.knows_minimum, opus.breakpoints) == (4096, False, 4)
    assert PRICES["claude-opus-4-8"].minimum == 1024


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
