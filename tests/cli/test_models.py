"""`relquery models`: what is listed and recommended, and what fetching does when it is stopped."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest

from relquery.backends.local import forecast
from relquery.backends.local.forecast import Speed
from tests.cli.conftest import Run

COMMIT = "1" * 40
HEADER = json.dumps({"w": {"dtype": "I64", "shape": [3_000_000], "data_offsets": [0, 24_000_000]}})
WEIGHTS = len(HEADER).to_bytes(8, "little") + HEADER.encode() + b"\0\1\2\3" * 6_000_000
"""More than the 10 MiB that the client writes at a time."""
FILES = {"config.json": b"{}", "tokenizer.json": b"{}", "model.safetensors": WEIGHTS}
WHOLE = "\2\0\0\0\0\0\0\0{}"
"""A file of no weights."""
COMMAND = [sys.executable, "-c", "from relquery.cli import main; main()", "models", "fetch", "o/n"]


@dataclass
class Hub:
    """A stand-in for the hub, with one model."""

    address: str = ""
    stops_at: int | None = None
    """Bytes of the weights after which it sends no more."""
    stopped: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)
    ranges: list[str | None] = field(default_factory=list)
    """What was asked for of the weights."""


@contextmanager
def serving(hub: Hub) -> Iterator[Hub]:
    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self._answer(is_head=True)

        def do_GET(self) -> None:
            self._answer(is_head=False)

        def _answer(self, *, is_head: bool) -> None:
            if self.path.startswith("/api/"):
                listed = [
                    {"type": "file", "path": name, "size": len(content), "oid": name}
                    for name, content in FILES.items()
                ]
                siblings = [{"rfilename": n, "size": len(c)} for n, c in FILES.items()]
                known = {"id": "o/n", "sha": COMMIT, "siblings": siblings}
                self._send(json.dumps(listed if "/tree/" in self.path else known).encode())
                return
            name = self.path.partition("?")[0].rpartition("/")[2]
            content = FILES[name]
            told = self.headers.get("Range")
            begin = int(told.removeprefix("bytes=").partition("-")[0]) if told else 0
            if name == "model.safetensors" and not is_head:
                hub.ranges.append(told)
            etag = hashlib.sha256(content).hexdigest()
            self.send_response(206 if told else 200)
            self.send_header("ETag", f'"{etag}"')
            self.send_header("X-Repo-Commit", COMMIT)
            self.send_header("Content-Length", str(len(content) - begin))
            if told:
                span = f"bytes {begin}-{len(content) - 1}/{len(content)}"
                self.send_header("Content-Range", span)
            self.end_headers()
            if is_head:
                return
            if name == "model.safetensors" and hub.stops_at is not None:
                self.wfile.write(content[begin : hub.stops_at])
                self.wfile.flush()
                hub.stopped.set()
                hub.released.wait(60)
                return
            self.wfile.write(content[begin:])

        def _send(self, content: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *told: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    hub.address = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield hub
    finally:
        hub.released.set()
        server.shutdown()
        server.server_close()


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without models."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "OLLAMA_MODELS", "HF_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def placed(path: Path, content: str = "GGUF") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="utf-8")


def cached(home: Path, repository: str, *names: str) -> None:
    """Files of a repository in the hub's cache."""
    folder = home / "hf" / "hub" / f"models--{repository.replace('/', '--')}"
    placed(folder / "refs" / "main", COMMIT)
    for name in names:
        content = WHOLE if name.endswith(".safetensors") else "GGUF"
        placed(folder / "snapshots" / COMMIT / name, content)


def told(hub: Hub) -> dict[str, str]:
    """The environment of a process that asks the stand-in."""
    return os.environ | {"HF_ENDPOINT": hub.address}


def fetch_from(hub: Hub) -> subprocess.CompletedProcess[str]:
    """`relquery models fetch` of its model."""
    return subprocess.run(COMMAND, env=told(hub), capture_output=True, text=True, check=False)


def test_what_ctrl_c_stops_is_fetched_from_where_it_was(home: Path) -> None:
    hub = Hub(stops_at=len(WEIGHTS) // 2)
    with serving(hub):
        first = subprocess.Popen(COMMAND, env=told(hub), stderr=subprocess.PIPE, text=True)
        assert hub.stopped.wait(60)
        blobs = home / "hf" / "hub" / "models--o--n" / "blobs"
        part = blobs / f"{hashlib.sha256(WEIGHTS).hexdigest()}.part"
        while not part.is_file() or not part.stat().st_size:  # the client has read some of it
            assert first.poll() is None
        first.send_signal(signal.SIGINT)
        _, said = first.communicate(timeout=60)
        assert first.returncode == 130
        assert "What has come is kept" in said
        come = part.stat().st_size
        hub.stops_at = None
        again = fetch_from(hub)
    assert again.returncode == 0, again.stderr
    assert "o/n is here. Use it: relquery sql -m o/n" in again.stderr
    assert come > 0
    assert hub.ranges == [None, f"bytes={come}-"]
    weights = home / "hf" / "hub" / "models--o--n" / "snapshots" / COMMIT / "model.safetensors"
    assert weights.read_bytes() == WEIGHTS
    assert not part.exists()


def test_a_file_that_was_damaged_on_its_way_is_refused(home: Path) -> None:
    hub, blobs = Hub(), home / "hf" / "hub" / "models--o--n" / "blobs"
    part = blobs / f"{hashlib.sha256(WEIGHTS).hexdigest()}.part"
    placed(part, "x" * 1_000)
    with serving(hub):
        ran = fetch_from(hub)
    assert ran.returncode == 1
    assert "model.safetensors was damaged on its way, and is deleted" in ran.stderr
    assert hub.ranges == ["bytes=1000-"]
    assert not part.exists()


def test_files_that_are_not_as_long_as_the_hub_says_are_fetched_again(home: Path) -> None:
    cached(home, "o/n", "config.json", "tokenizer.json", "model.safetensors")
    folder = home / "hf" / "hub" / "models--o--n" / "snapshots" / COMMIT
    with serving(Hub()) as hub:
        ran = fetch_from(hub)
        assert ran.returncode == 0, ran.stderr
    assert {name: (folder / name).read_bytes() for name in FILES} == FILES


@pytest.mark.parametrize("cut", ["model.safetensors", "x-Q8_0.gguf"])
def test_what_is_not_whole_is_not_said_to_be_here(home: Path, relquery: Run, cut: str) -> None:
    cached(home, "o/n", "config.json", cut)
    file = home / "hf" / "hub" / "models--o--n" / "snapshots" / COMMIT / cut
    file.write_bytes(file.read_bytes()[:-1] if cut == "model.safetensors" else b"GGUF\3")
    name = "o/n" if cut == "model.safetensors" else "o/n:Q8_0"
    said = " ".join(relquery("models", "fetch", name, code=1)[1].split())
    assert "not whole, and cannot be downloaded again" in said or "may be cut short" in said


def test_a_disk_that_cannot_be_written_to_is_named(
    monkeypatch: pytest.MonkeyPatch, home: Path, relquery: Run
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(
        huggingface_hub, "model_info", lambda *_, **__: SimpleNamespace(siblings=())
    )
    monkeypatch.setattr(huggingface_hub, "snapshot_download", full)
    said = " ".join(relquery("models", "fetch", "o/n", code=1)[1].split())
    assert said.endswith("or set HF_HOME to a folder on another one.")
    assert "found on the hub" not in said


def test_what_cannot_be_fetched_says_what_can(
    relquery: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for name in ("demo", "smollm2:135m", "Qwen/Qwen3-0.6"):
        said = " ".join(relquery("models", "fetch", name, code=1)[1].split())
        assert "Did you mean 'demo'" not in said
        assert "ollama pull" in said
        assert ".." not in said.replace("random:...", "")
    assert "Did you mean 'Qwen/Qwen3-0.6B'?" in said


def test_a_hub_that_cannot_be_reached_is_an_error_with_a_remedy(
    relquery: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(name: str, **more: object) -> None:
        raise ConnectionError("connection refused")

    monkeypatch.setattr(huggingface_hub, "model_info", unreachable)
    for name in ("o/n", "o/n:Q4_K_M"):
        said = " ".join(relquery("models", "fetch", name, code=1)[1].split())
        assert "The hub cannot be reached: connection refused." in said
        assert "copy the model's folder from another machine and give its path" in said


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of 16 GB that reads 70 billion weights a second."""
    speeds = {form: Speed(70e9, 1e12) for form in ("Q4_K_M", "bfloat16", "float32")}
    monkeypatch.setattr(forecast, "measure_speeds", lambda forms: speeds)
    monkeypatch.setattr(forecast, "host_bytes", lambda: 16e9)


@pytest.mark.usefixtures("measured")
def test_the_list_tells_what_is_here_and_what_to_begin_with(
    home: Path, relquery: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    cached(home, "Qwen/Qwen2.5-0.5B-Instruct-GGUF", "qwen2.5-0.5b-instruct-q4_k_m.gguf")
    cached(home, "sentence-transformers/all-MiniLM-L6-v2", "config.json")  # without weights
    cached(home, "BAAI/bge-small-en-v1.5", "config.json", "model.safetensors")
    placed(home / ".lmstudio" / "models" / "owner" / "x-GGUF" / "x-Q8_0.gguf")
    told = {"layers": [{"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:a"}]}
    store = home / ".ollama" / "models"
    placed(store / "manifests" / "registry.ollama.ai" / "library" / "smol" / "1b", json.dumps(told))
    placed(store / "blobs" / "sha256-a")
    document = json.loads(relquery("models", "--json")[0])
    assert {(each["name"], each["where"], each["size"]) for each in document["here"]} == {
        ("Qwen/Qwen2.5-0.5B-Instruct-GGUF:Q4_K_M", "hub cache", 4),
        ("BAAI/bge-small-en-v1.5", "hub cache", len(WHOLE)),
        ("owner/x-GGUF:Q8_0", "LM Studio", 4),
        ("smol:1b", "Ollama", 4),
    }
    listed = {each["model"]["name"]: each for each in document["models"]}
    assert [name for name, each in listed.items() if each["here"]] == [
        "Qwen/Qwen2.5-0.5B-Instruct",
        "BAAI/bge-small-en-v1.5",
    ]
    llama = listed["meta-llama/Llama-3.2-1B-Instruct"]
    assert llama["answer_speed"] == pytest.approx(70e9 / 1.2358e9, rel=1e-3)
    assert llama["size"] == pytest.approx(0.81e9, rel=0.02)
    assert [name for name, each in listed.items() if each["recommended"]] == [
        "ibm-granite/granite-3.3-2b-instruct",  # the next one thinks first, others have 18 or less
        "sentence-transformers/all-MiniLM-L6-v2",
    ]
    out, _ = relquery("models")
    assert "HuggingFaceTB/SmolLM2-135M-Instruct" in out
    shown = [
        line for line in out.splitlines() if not line.startswith(("Text", "Enc", "Rec", "Also"))
    ]
    assert [line for line in shown if len(line) > 80] == []
    assert len(shown) < 45
    assert "Also here: owner/x-GGUF:Q8_0 (0.00 GB, LM Studio)" in out
    assert "relquery models fetch sentence-transformers/all-MiniLM-L6-v2" in out
