"""Debian's Prometheus understands the configuration, and scrapes a server with it."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from relquery.serve.auth import Key, hash_of, new_key, write_keys
from tests.deploy.dockerfile import DEPLOY
from tests.programs import needed
from tests.serve.conftest import free_port, started

PATIENCE = 40.0  # seconds until the first samples can be asked for


@pytest.fixture(autouse=True)
def _programs() -> None:
    needed("promtool", "prometheus")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The configuration, and the key beside it."""
    folder = tmp_path / "prometheus"
    shutil.copytree(DEPLOY / "prometheus", folder, ignore=shutil.ignore_patterns("key"))
    (folder / "key").write_text(new_key())
    return folder


def test_promtool_finds_nothing_wrong(folder: Path) -> None:
    for kind, name in (("config", "prometheus.yml"), ("rules", "rules.yml")):
        command = ("promtool", "check", kind, "--lint-fatal", str(folder / name))
        ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert ran.returncode == 0, ran.stdout + ran.stderr


def test_prometheus_scrapes_a_server_with_an_operators_key(folder: Path, tmp_path: Path) -> None:
    key, client = (folder / "key").read_text(), new_key()
    keys = tmp_path / "keys.json"
    known = [("prometheus", key, True), ("client", client, False)]
    write_keys(keys, [Key(n, n, hash_of(k), k[:7], operator=o) for n, k, o in known])
    with started("simulated:step=0.001", keys=keys) as server:
        config = folder / "prometheus.yml"
        text = config.read_text().replace("relquery:8000", f"127.0.0.1:{server.port}")
        config.write_text(text.replace("scrape_interval: 5s", "scrape_interval: 1s"))
        answer = httpx.post(
            f"{server.url}/v1/completions",
            json={"model": "simulated:step=0.001", "prompt": "Hello", "max_tokens": 2},
            headers={"Authorization": f"Bearer {client}"},
        )
        assert answer.status_code == 200, answer.text
        with scraping(config, tmp_path / "series") as url:
            query = 'relquery_http_requests_total{path="/v1/completions",tenant="client"}'
            assert first_value(url, query) == 1
            assert first_value(url, 'up{job="relquery"}') == 1
            rules = httpx.get(f"{url}/api/v1/rules").json()["data"]["groups"]
            assert [rule["health"] for group in rules for rule in group["rules"]]


@contextmanager
def scraping(config: Path, storage: Path) -> Iterator[str]:
    """Prometheus as a process of its own; yields its address."""
    address = f"127.0.0.1:{free_port()}"
    files = (f"--config.file={config}", f"--storage.tsdb.path={storage}")
    command = ["prometheus", *files, f"--web.listen-address={address}"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield f"http://{address}"
        finally:
            process.terminate()


def first_value(url: str, query: str) -> float:
    """Of the first series of a query, once there is one."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        try:
            found = httpx.get(f"{url}/api/v1/query", params={"query": query}).json()
        except httpx.TransportError:
            found = {}
        if series := found.get("data", {}).get("result"):
            return float(series[0]["value"][1])
        time.sleep(0.2)
    raise AssertionError(f"no series of {query}")
