"""The server does what its OpenAPI document says, whatever it is sent.

schemathesis makes requests from the document, valid and invalid ones, and checks every answer. A
longer run: RELQUERY_FUZZ=1000 (requests for each route and phase) in the environment.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from relquery.serve.auth import Key, hash_of, write_keys
from tests.serve.conftest import Running, started

pytest.importorskip("schemathesis", reason="needs relquery[dev]")

pytestmark = pytest.mark.long

EXAMPLES = os.environ.get("RELQUERY_FUZZ", "4")
CONFIG = Path(__file__).parent / "schemathesis.toml"
MODEL = "simulated:step=0.0005,length=4"
KEY = "rq-a-key-of-the-tests"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    state = tmp_path_factory.mktemp("whole")
    tables = {"movies": "demo:movies"}
    with started(MODEL, names=("demo",), tables=tables, state=state) as found:
        yield found


def test_no_request_gets_an_answer_that_the_document_does_not_have(whole: Running) -> None:
    """schemathesis finds no violation: statuses, types of content, schemas, headers, methods."""
    _fuzz(whole, "--max-examples", EXAMPLES)
    state = httpx.get(f"{whole.url}/console/state").json()
    assert state["requests"] == {"open": 0, "waiting": 0, "running": 0}


def test_no_route_but_health_answers_without_a_key_that_the_document_asks_for(
    tmp_path: Path,
) -> None:
    """schemathesis leaves keys out, and gives wrong ones."""
    key = Key("tests", "tests", hash_of(KEY), KEY[:6], operator=True)
    write_keys(tmp_path / "keys.json", [key])
    with started(MODEL, names=("demo",), keys=tmp_path / "keys.json") as server:
        headers = {"Authorization": f"Bearer {KEY}"}
        document = httpx.get(f"{server.url}/openapi.json", headers=headers, timeout=60).json()
        operations = [each for path in document["paths"].values() for each in path.values()]
        assert sum("security" not in each for each in operations) == 3
        assert httpx.get(f"{server.url}/openapi.json").status_code == 401
        _fuzz(server, "--phases=fuzzing", "--max-examples=2", f"-HAuthorization: Bearer {KEY}")


def _fuzz(server: Running, *options: str) -> None:
    headers = dict(each[2:].split(": ") for each in options if each.startswith("-H"))
    httpx.get(f"{server.url}/openapi.json", headers=headers, timeout=60)  # which is made once
    command = [
        *(sys.executable, "-m", "schemathesis.cli", f"--config-file={CONFIG}", "run"),
        f"{server.url}/openapi.json",
        *("--seed=1", "--generation-database=none", "--no-shrink", "--continue-on-failure"),
        *("--no-color", "--warnings=off", *options),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
