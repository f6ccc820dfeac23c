"""A vLLM server as its users start it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from relquery.demo.files import model_path
from relquery.errors import RelqueryError

PATIENCE = 300.0
"""Seconds until a server must take requests."""
CLASS = "relquery.vllm.RelServeScheduler"
OPTIONS = (
    "--served-model-name", "demo", "--dtype", "float32", "--block-size", "32",
    "--max-model-len", "2048", "--max-num-seqs", "32", "--enable-prompt-tokens-details",
)  # fmt: skip


@contextmanager
def running(python: Path, ours: Mapping[str, Any] | None, log: Path) -> Iterator[str]:
    """The address of a server. ours: settings of our scheduler; None for vLLM as it is.

    Raises RelqueryError if it does not start.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    command = [str(python), "-m", "vllm.entrypoints.openai.api_server", "--port", str(port)]
    command += ["--model", str(model_path()), *OPTIONS]
    if ours is not None:
        additional = json.dumps({"relquery": ours})
        command += ["--scheduler-cls", CLASS, "--additional-config", additional]
    settings: Mapping[str, str] = {
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_LOGGING_LEVEL": "WARNING",
        "VLLM_HTTP_TIMEOUT_KEEP_ALIVE": "600",  # the client keeps its connections
    }
    with log.open("w") as written:
        process = subprocess.Popen(
            command, stdout=written, stderr=written, env={**os.environ, **settings}
        )
    url = f"http://127.0.0.1:{port}"
    try:
        end = time.monotonic() + PATIENCE
        while not _answers(url):
            if process.poll() is not None or time.monotonic() > end:
                last = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
                raise RelqueryError(f"vLLM did not start. It printed:\n{last}")
            time.sleep(0.5)
        yield url
    finally:
        process.terminate()
        process.wait(60)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
