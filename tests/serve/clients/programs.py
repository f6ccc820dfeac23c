"""What reads tables, plans queries, passes requests on, and measures models and servers."""

from __future__ import annotations

import asyncio
import atexit
import json
import math
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from dataclasses import replace
from enum import StrEnum
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from tests.serve.clients.features import CLIENTS, LEAST, QUESTION, Target, check, feature

PATIENCE = 300.0
"""Seconds until a program has started."""
CITIES = ["Bonn", "Rome"]


class City(StrEnum):
    """Daft knows enums, and takes literals for text."""

    BONN = "Bonn"
    ROME = "Rome"


class Weather(BaseModel):
    """What Daft's answers are to be."""

    city: City
    good: bool


def _lotus(target: Target) -> Any:
    lotus, pandas = import_module("lotus"), import_module("pandas")
    lm = import_module("lotus.models").LM(
        model=f"openai/{target.model}", api_base=target.v1, api_key="none", max_tokens=16
    )
    lotus.settings.configure(lm=lm)
    return pandas.DataFrame({"city": CITIES})


@feature("LOTUS", "chat")
def _(target: Target) -> None:
    table = _lotus(target)
    check(len(table.sem_map("Say something about {city}")) == 2)
    check(len(table.sem_filter("{city} is in Germany")) <= 2)
    check(len(table.sem_agg("Say what {city} have in common")) == 1)


def _daft(target: Target, **more: Any) -> list[Any]:
    """The answers about two rows."""
    daft, functions = import_module("daft"), import_module("daft.functions")
    provider = import_module("daft.ai.openai.provider").OpenAIProvider(
        base_url=target.v1, api_key="none"
    )
    text = functions.format("What is the weather in {}?", daft.col("city"))
    asked = functions.prompt(text, provider=provider, model=target.model, max_retries=0, **more)
    found: list[Any] = (
        daft.from_pydict({"city": CITIES}).select(asked.alias("said")).to_pydict()["said"]
    )
    return found


@feature("Daft", "chat")
def _(target: Target) -> None:
    check(len(_daft(target, use_chat_completions=True, max_tokens=8)) == 2)
    check(len(_daft(target, max_output_tokens=16)) == 2)


@feature("Daft", "structured")
def _(target: Target) -> None:
    for name, most in (("use_chat_completions", "max_tokens"), ("", "max_output_tokens")):
        more: dict[str, Any] = {name: True} if name else {}
        found = _daft(target, return_format=Weather, **more, **{most: LEAST})
        check(all(row["city"] in CITIES for row in found), found)


@feature("spnl", "chat")
def _(target: Target) -> None:
    os.environ["OPENAI_API_BASE"] = target.v1
    asked = {"user": QUESTION}
    query = {"g": {"model": f"openai/{target.model}", "max_tokens": 5, "input": asked}}

    async def execute() -> Any:
        return await import_module("spnl").execute(json.dumps(query))

    check(asyncio.run(execute()).data is not None)


@cache
def _proxied(target: Target) -> Target:
    """The same models behind litellm's proxy, which runs until this process ends."""
    import_module("litellm.proxy.proxy_cli")
    params = {"model": "openai/*", "api_base": target.v1, "api_key": "none"}
    models = [{"model_name": "*", "litellm_params": params}]
    folder = tempfile.mkdtemp()
    config = Path(folder, "config.yaml")
    general = {"dangerously_permit_weak_or_unset_master_key": True}  # it is on loopback
    config.write_text(json.dumps({"model_list": models, "general_settings": general}))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    command = [str(Path(sys.executable).with_name("litellm")), "--config", str(config)]
    with Path(folder, "log").open("w") as log:
        process = subprocess.Popen(
            [*command, "--host", "127.0.0.1", "--port", port], stdout=log, stderr=log
        )
    atexit.register(process.kill)
    url, end = f"http://127.0.0.1:{port}", time.monotonic() + PATIENCE
    while time.monotonic() < end:
        try:
            urllib.request.urlopen(f"{url}/health/liveliness").close()
        except OSError:
            check(process.poll() is None, Path(folder, "log").read_text()[-200:])
            time.sleep(0.5)
        else:
            return replace(target, url=url)
    process.kill()
    raise TimeoutError(f"litellm's proxy did not start within {PATIENCE:g} seconds")


def _through_the_proxy(name: str) -> None:
    feature("litellm proxy", name)(lambda target: CLIENTS["openai"][name](_proxied(target)))


for each in ("chat", "stream", "tools", "streamed tools", "structured", "embeddings"):
    _through_the_proxy(each)


TASK = {
    "task": "cities",
    "dataset_path": "json",
    "test_split": "test",
    "output_type": "multiple_choice",
    "doc_to_text": "{{question}}",
    "doc_to_choice": ["Yes", "No"],
    "doc_to_target": "answer",
    "metric_list": [{"metric": "acc", "aggregation": "mean", "higher_is_better": True}],
}


@feature("lm-eval", "logprobs")
def _(target: Target) -> None:
    """A task of its own, by log-likelihoods, which it reads off echoed prompts."""
    with tempfile.TemporaryDirectory() as name:
        rows = Path(name, "rows.jsonl")
        asked = [
            {"question": f"Is {city} in Germany?", "answer": city == "Bonn"} for city in CITIES
        ]
        rows.write_text("".join(f"{json.dumps(row)}\n" for row in asked))
        task = TASK | {"dataset_kwargs": {"data_files": {"test": str(rows)}}}
        Path(name, "cities.yaml").write_text(json.dumps(task))
        lm_eval = import_module("lm_eval")
        manager = import_module("lm_eval.tasks").TaskManager(
            include_path=name, include_defaults=False
        )
        found = lm_eval.simple_evaluate(
            model="local-completions",
            model_args={
                "base_url": f"{target.v1}/completions",
                "model": target.model,
                "tokenizer": target.tokenizer,
                "tokenizer_backend": "huggingface",
                "tokenized_requests": False,
                "max_retries": 1,
            },
            tasks=["cities"],
            task_manager=manager,
            bootstrap_iters=0,
        )
    samples = found["samples"]["cities"]
    logs = [float(each[0]) for sample in samples for each in sample["filtered_resps"]]
    check(len(logs) == 4 and all(math.isfinite(log) and log < 0 for log in logs), logs)
    check(0 <= found["results"]["cities"]["acc,none"] <= 1, found["results"])


def _bench(target: Target, backend: str, endpoint: str, model: str, tokenizer: str) -> None:
    """`vllm bench serve` with requests of random tokens, all of which are answered."""
    import_module("vllm")
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "vllm.entrypoints.cli.main", "bench", "serve"]
        command += ["--backend", backend, "--endpoint", endpoint, "--base-url", target.url]
        command += ["--model", model, "--tokenizer", tokenizer, "--dataset-name", "random"]
        command += ["--random-input-len", "32", "--random-output-len", "8", "--num-prompts", "6"]
        command += ["--max-concurrency", "3", "--save-result", "--result-dir", folder]
        command += ["--result-filename", "result.json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        check(done.returncode == 0, (done.stderr or done.stdout)[-200:])
        result = json.loads(Path(folder, "result.json").read_text())
    check(result["completed"] == 6, result)
    check("embeddings" in backend or result["total_output_tokens"] > 0, result)


@feature("vLLM bench serve", "chat")
def _(target: Target) -> None:
    _bench(target, "openai-chat", "/v1/chat/completions", target.model, target.tokenizer)


@feature("vLLM bench serve", "stream")
def _(target: Target) -> None:
    _bench(target, "openai", "/v1/completions", target.model, target.tokenizer)
    _bench(target, "vllm", "/v1/completions", target.model, target.tokenizer)


@feature("vLLM bench serve", "embeddings")
def _(target: Target) -> None:
    _bench(target, "openai-embeddings", "/v1/embeddings", target.encoder, target.tokenizer)
