"""The benchmark beside llama.cpp and OpenVINO runs without them, on a tiny file."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from gguf import GGMLQuantizationType, quants
from transformers import LlamaConfig, LlamaForCausalLM

from benchmarks.cpu_peers import beside
from benchmarks.cpu_peers.benchmark import BENCHMARK
from benchmarks.cpu_peers.beside import Billion, Smollm2, figures
from benchmarks.cpu_peers.files import Shape, requantise, weigh, write_random
from benchmarks.cpu_peers.jobs import passages
from benchmarks.cpu_peers.sizes import QUICK, SMOLLM2
from benchmarks.engine import worker
from benchmarks.engine.sides import OURS, Raced
from benchmarks.stock import stock_tokenizer
from relquery.model.formats.gguf import read_gguf
from relquery.model.text.gguf_tokenizer import read_gguf_tokenizer
from tests.benchmarks.conftest import Quick, films
from tests.model.formats.test_gguf import letters
from tests.model.oracle.written_gguf import write_gguf

SHAPE = Shape(layers=1, hidden=64, heads=2, kv_heads=1, inner=96)
TINY = replace(
    QUICK, formats=("F16",), prefill=(2, 20), batches=(1, 2), start=4, steps=2, rows=2, system=5,
    passage=8, question=3, passages=3, cache=2**26, seconds=0.01,
)  # fmt: skip
TEMPLATE = "{% for each in messages %}{{ each['content'] }}{% endfor %}"
SERVER = """#!{python}
import json, sys
from http.server import BaseHTTPRequestHandler, HTTPServer

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.tell({{"status": "ok"}})

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with open("{log}", "a") as log:
            log.write(json.dumps([sys.argv, asked]) + "\\n")
        self.tell({{"tokens": [7] * asked["n_predict"]}})

    def tell(self, found):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(found).encode())

HTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Handler).serve_forever()
"""
"""In place of llama.cpp's server: it answers with sevens, and writes down what it was asked."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tiny model.gguf and its tokenizer, in the place of SmolLM2."""
    torch.manual_seed(0)
    network = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=97, hidden_size=SHAPE.hidden, intermediate_size=SHAPE.inner,
            num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1,
            max_position_embeddings=4_096, tie_word_embeddings=True,
        )
    )  # fmt: skip
    path = tmp_path / "model.gguf"
    told = letters() | {"tokenizer.chat_template": TEMPLATE}
    write_gguf(network, path, told, formats=("Q4_1",))
    tokenizer = read_gguf_tokenizer(read_gguf(path).metadata, "tiny")
    stock_tokenizer(tokenizer).save_pretrained(tmp_path)
    monkeypatch.setattr(beside, "MODEL", tmp_path)
    return tmp_path


def test_a_quick_run_beside_our_own_engine_as_the_peer(
    quick: Quick, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beside, "pythons", lambda *given: {OURS: Path(sys.executable)})
    monkeypatch.setattr(beside, "FASTEST", "float32")
    monkeypatch.setattr(Smollm2, "quick", TINY)
    monkeypatch.setattr(Billion, "quick", replace(TINY, formats=("Q8_0",), shape=SHAPE))
    (folder / "movies").mkdir()
    pq.write_table(films(), folder / "movies" / "movies.parquet")
    found, text = quick(BENCHMARK)
    for part, form in (("smollm2", "F16"), ("llama_1b", "Q8_0")):
        assert found[f"{part}_same_answers_{form}_ours"].value == 1.0
    names = ("prefill", "decode_1", "decode_2", "passages", "filter", "filter_table_order")
    for name in names:
        figure = found[f"smollm2_{name}_F16_over_ours"]
        assert "at a small size" in figure.note, figure
        assert f"| {name.replace('_', ' ')} |" in text
    assert "| F16 | relquery float32 | relquery bfloat16 | ours |" in text


def test_without_the_model_it_says_how_to_get_it(
    quick: Quick, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beside, "MODEL", tmp_path / "none")
    found, _ = quick(BENCHMARK, "smollm2")
    assert "run scripts/real-models smollm2" in found["smollm2_prefill"].note


@pytest.mark.parametrize("form", ["F16", "Q8_0"])
def test_a_file_in_another_format_holds_the_same_numbers(folder: Path, form: str) -> None:
    requantise(folder / "model.gguf", folder / "other.gguf", form)
    before, after = read_gguf(folder / "model.gguf"), read_gguf(folder / "other.gguf")
    assert after.metadata == before.metadata
    for name, weight in before.weights.items():
        kept = GGMLQuantizationType[form if weight.floats().ndim > 1 else "F32"]
        rounded = quants.dequantize(quants.quantize(weight.floats(), kept), kept)
        assert np.array_equal(after.weights[name].floats(), rounded)


@pytest.mark.parametrize("form", ["Q8_0", "Q4_1"])
def test_random_weights_are_about_zero_and_of_the_usual_size(folder: Path, form: str) -> None:
    write_random(folder / "model.gguf", folder / "random.gguf", SHAPE, form, seed=1)
    file = read_gguf(folder / "random.gguf")
    drawn = file.weights["blk.0.ffn_up.weight"].floats()
    assert drawn.shape == (96, 64)
    assert abs(drawn.mean()) < 0.005
    assert 0.015 < drawn.std() < 0.025
    found = weigh(file)
    matrices = 2 * 64 * 64 + 2 * 32 * 64 + 3 * 64 * 96
    assert (found.layers, found.head) == (matrices, 97 * 64)
    block = {"Q8_0": 34, "Q4_1": 20}[form]
    assert found.bytes == matrices // 32 * block + 97 * 64 // 32 * 34


def test_passages_are_the_same_tokens_in_other_orders() -> None:
    job = passages(SMOLLM2, 1_000, np.random.default_rng(3)).job
    (before,) = job.before
    assert job.few
    assert len(job.apart) == 4
    parts = {tuple(before[begin:end]) for begin, end in job.apart}
    for prompt in job.prompts:
        assert {tuple(prompt[begin:end]) for begin, end in job.apart} == parts
        assert prompt[:64] == before[:64]
        assert len(prompt) == 64 + 4 * 500 + 32
    assert len({tuple(prompt) for prompt in job.prompts}) == len(job.prompts)


def test_a_figure_compares_the_format_that_peers_multiply_in() -> None:
    seconds = {"relquery float32": [9.0], "relquery bfloat16": [2.0], "llama.cpp": [3.0]}
    (figure,) = figures("smollm2", Raced("filter", "F16", 0, seconds), ["llama.cpp"])
    assert (figure.value, figure.goal) == (1.5, 1.3)
    (figure,) = figures("smollm2", Raced("decode_1", "F16", 5, seconds), ["openvino"])
    assert (figure.value, figure.goal) == (None, 1.0)


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """What a stand-in for llama.cpp's server is asked, a line each."""
    program, log = tmp_path / "build" / "bin" / "llama-server", tmp_path / "log"
    program.parent.mkdir(parents=True)
    program.write_text(SERVER.format(python=sys.executable, log=log))
    program.chmod(0o755)
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    servers: list[worker.LlamaServer] = []

    class Kept(worker.LlamaServer):
        def __init__(self, *given: str) -> None:
            super().__init__(*given)
            servers.append(self)

    monkeypatch.setattr(worker, "LlamaServer", Kept)
    yield log
    for server in servers:
        server.stop()


def test_llama_cpp_gets_a_slot_for_each_request_and_no_prompt_twice(asked: Path) -> None:
    run, forget = worker.llama_cpp("some.gguf", "fastest", 0)
    prompts = [[20, 21, 22], [30]]
    for few in (False, True, True):
        forget()
        seconds, answers = run(prompts, 3, ((1, 2),) if few else (), few=few)
        assert (seconds > 0, answers) == (True, [[7, 7, 7], [7, 7, 7]])
    _, *calls = [json.loads(line) for line in asked.read_text().splitlines()]
    slots = [command[command.index("-np") + 1] for command, _ in calls]
    assert slots == ["2", "2", "1", "1", "1", "1"]
    first, second, third = (calls[at : at + 2] for at in (0, 2, 4))
    assert sorted(each["prompt"] for _, each in first) == sorted(prompts)
    salts = {each["prompt"][0] for _, each in second + third}
    assert len(salts) == 2
    assert [each["prompt"][1:] for _, each in second] == prompts
    assert [each.get("n_cache_reuse") for _, each in (first[0], second[0])] == [None, 64]
