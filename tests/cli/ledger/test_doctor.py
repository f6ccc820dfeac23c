"""`relquery doctor` names the cause of each missed hit, from queries sent to the stand-in."""

from __future__ import annotations

import asyncio
import csv
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import relquery as rq
from benchmarks.standin.billing import Account
from benchmarks.standin.prompt import Counter, pieces
from benchmarks.standin.provider import Provider
from benchmarks.standin.server import Reply, serving, started
from benchmarks.standin.wires.openai_chat import completion
from tests.cli.conftest import Run

pytestmark = pytest.mark.filterwarnings("ignore::relquery.errors.SamplingWarning")
MODEL = "anthropic:claude-sonnet-5"
ASKED = "SELECT LLM('Is it good?', films.*) AS good FROM films"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.db"


@pytest.fixture(autouse=True)
def _wide(relquery: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "180")


def films(titles: int, reviews: int, words: int = 1500) -> pa.Table:
    """The description of each film has about so many tokens; reviews are short."""
    rows = range(titles * reviews)
    texts = [f"Film {at % titles} is about the sea. " * (words // 8) for at in rows]
    return pa.table({"review": [f"Review {at} was short." for at in rows], "film": texts})


def ask(standin: Provider, path: Path, rows: pa.Table, model: str = MODEL, **config: Any) -> None:
    with started(standin):
        base = standin.root if model.startswith("anthropic") else standin.url
        settings = {"max_concurrency": 1, **config}
        with rq.connect(model, base_url=base, api_key="k", ledger=path, **settings) as con:
            con.register("films", rows)
            assert len(con.sql(ASKED)) == len(rows)


def diagnosed(relquery: Run, path: Path) -> tuple[dict[str, Any], dict[str, int]]:
    """(the only run, answers by cause)."""
    out, _ = relquery("doctor", str(path), "--format", "json")
    (run,) = json.loads(out)["runs"]
    return run, {cause["cause"]: cause["answers"] for cause in run["causes"]}


def yes(sent: object) -> str:
    del sent
    return "Yes"


@pytest.mark.parametrize(
    "model",
    [MODEL, pytest.param("openai:gpt-4o-mini", marks=pytest.mark.long), "openai:gpt-6-luna"],
)
def test_what_was_read_as_planned_is_no_miss(relquery: Run, path: Path, model: str) -> None:
    ask(Provider(answer=yes), path, films(3, 4), model)
    run, causes = diagnosed(relquery, path)
    assert (run["answers"], run["readers"], run["hits"]) == (12, 9, 9)
    assert run["expected_tokens"] <= run["cached_tokens"] <= 1.1 * run["expected_tokens"]
    assert run["missed_tokens"] == 0
    assert causes == {}


@dataclass(slots=True)
class Together:
    """Waits until so many requests are under way: none is answered before."""

    standin: Provider
    count: int
    event: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, seconds: float) -> None:
        if self.standin.under_way >= self.count:
            self.event.set()
        await self.event.wait()


@pytest.fixture(scope="module")
def missed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path, standin = tmp_path_factory.mktemp("missed") / "run.db", Provider(answer=yes)
    standin.sleep = Together(standin, 4)
    ask(standin, path, films(1, 4), max_concurrency=4)
    return path


def test_requests_that_go_out_together_all_write(relquery: Run, missed: Path) -> None:
    run, causes = diagnosed(relquery, missed)
    assert causes == {"concurrent first writes": 3}
    assert run["hits"] == run["cached_tokens"] == 0
    assert run["missed_tokens"] == run["expected_tokens"] > 3 * 1024
    assert run["usd"] == pytest.approx(run["missed_tokens"] * (2.50 - 0.20) / 1e6)


def test_what_the_provider_drops_is_evicted(relquery: Run, path: Path) -> None:
    account = Account(Counter(pieces), capacity=2000)  # tokens: room for one film
    ask(Provider(account, answer=yes), path, films(3, 2))
    assert set(diagnosed(relquery, path)[1]) == {"evicted"}


def test_prefixes_below_the_minimum_share_in_vain(relquery: Run, path: Path) -> None:
    ask(Provider(answer=yes), path, films(2, 3, 400))
    run, causes = diagnosed(relquery, path)
    assert causes == {"below the minimum": 6}
    assert run["expected_tokens"] == run["missed_tokens"] == 0
    (cause,) = run["causes"]
    # Nothing is saved, so fields are sent as written: the instruction and the question are shared.
    assert cause["tokens"] == pytest.approx(6 * 60, rel=0.25)
    assert cause["usd"] == pytest.approx(cause["tokens"] * 1.8e-6)


def test_a_given_order_is_named_where_another_shares(relquery: Run, tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    ask(Provider(answer=yes), path, films(2, 3), order="original")
    assert diagnosed(relquery, path)[1] == {"order pinned": 6}
    short = tmp_path / "short.db"
    ask(Provider(answer=yes), short, films(2, 3, 400), order="original")
    assert diagnosed(relquery, short)[1] == {"below the minimum": 6}


def answered(path: Path, model: str, rows: int, reply: Reply) -> None:
    with (
        serving(lambda body: reply) as server,
        rq.connect(f"openai:{model}", base_url=server.url, api_key="k", ledger=path) as con,
    ):
        con.register("films", films(1, rows))
        con.sql(ASKED)


UNREPORTED = completion("Yes", prompt_tokens=1500)


@pytest.mark.parametrize(
    ("model", "rows", "reply", "causes"),
    [
        ("m", 2, completion("Yes"), {"no price known": 2}),
        ("gpt-5-mini", 1, completion("Yes"), {"only prompt": 1}),
        ("gpt-4o-mini", 3, UNREPORTED, {"not reported": 2}),  # which is not to blame
    ],
)
def test_what_is_not_expected_or_not_reported_is_no_miss(
    relquery: Run, tmp_path: Path, model: str, rows: int, reply: Reply, causes: dict[str, int]
) -> None:
    answered(tmp_path / "run.db", model, rows, reply)
    run, found = diagnosed(relquery, tmp_path / "run.db")
    assert (found, run["missed_tokens"], run["usd"]) == (causes, 0, None)


def test_it_shows_and_exports_what_is_found(relquery: Run, tmp_path: Path, missed: Path) -> None:
    for ending in ("csv", "json", "parquet"):
        output = tmp_path / f"misses.{ending}"
        assert f"Wrote 4 rows to {output}." in relquery("doctor", missed, "-o", output)[1]
    found = list(csv.DictReader((tmp_path / "misses.csv").read_text().splitlines()))
    assert [row["cause"] for row in found].count("concurrent first writes") == 3
    assert len({row["prefix"] for row in found}) == 1
    out, _ = relquery("doctor", missed)
    words = " ".join(out.split())
    assert "expected tokens were not read, which cost 0.0" in words
    assert "concurrent first writes: It was sent before" in words
    assert "Lower --concurrency" in words
    rows = [[cell.strip() for cell in line.split("│")] for line in out.splitlines()]
    (row,) = [row for row in rows if len(row) == 6 and "concurrent first writes" in row]
    assert row[1].startswith(MODEL)
    assert row[3] == "3"


def test_a_ledger_without_expectations_says_so(relquery: Run, tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    with rq.connect("demo", ledger=path) as con:
        con.sql("SELECT LLM('Say it.', 1) AS said")
    out, _ = relquery("doctor", str(path))
    assert "no hits were expected" in out
    assert "1 answer without an expectation" in out
    assert "does not exist" in relquery("doctor", str(tmp_path / "none.db"), code=1)[1]


def test_a_model_of_this_machine_is_compared_with_transformers(relquery: Run) -> None:
    out, _ = relquery("doctor", "-m", "demo")
    told = [line for line in out.splitlines() if line.startswith("compared")]
    assert len(told) == 3
    for line in told:
        same, tokens = re.search(r"off by \de-0[5-9], (\d+) of (\d+) greedy", line).groups()  # type: ignore[union-attr]
        assert same == tokens
