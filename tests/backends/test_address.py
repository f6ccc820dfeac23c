"""A server is opened by its address, and told which requests belong together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.standin.http import Json
from benchmarks.standin.server import Reply, Scripted
from benchmarks.standin.wires.openai_chat import completion
from relquery.backends.load import load
from relquery.backends.local import open as local
from relquery.connection import connect
from relquery.errors import ConfigError, ModelError
from tests.backends.conftest import Serve
from tests.cases import cases

OWNERS = {"vllm": "vllm_xargs", "relquery": "relquery", "somebody": None}


@pytest.fixture
def server(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> Scripted:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    server = serve(answer)
    server.models = {"tiny": "vllm"}
    return server


def answer(body: Json) -> Reply:
    return completion("fine")


def bodies(server: Scripted, **options: Any) -> list[Json]:
    with connect(server.url, ledger=None, **options) as con:
        con.sql("SELECT LLM('How is it?', n) FROM range(2) t(n)")
    return server.asked


def test_a_server_with_one_model_needs_no_name_and_others_do(server: Scripted) -> None:
    assert {body["model"] for body in bodies(server)} == {"tiny"}
    server.models["large"] = "vllm"
    server.asked.clear()
    assert {body["model"] for body in bodies(server, model="large")} == {"large"}
    with pytest.raises(ConfigError, match=r"2 models: tiny, large\. Name one"):
        connect(server.url)
    with pytest.raises(ConfigError, match=r"no model 'tony'.*Did you mean 'tiny'"):
        connect(server.url, model="tony")


@pytest.mark.parametrize("owner", OWNERS)
def test_servers_are_told_of_relqueries_in_their_own_form(server: Scripted, owner: str) -> None:
    server.models = {"tiny": owner}
    first, second = bodies(server)
    field = OWNERS[owner]
    told = {name for name in OWNERS.values() if name is not None and name in first}
    assert told == ({field} if field else set())
    if field:
        assert first[field] == second[field]
        assert 2 in first[field].values()


def test_each_stage_is_a_relquery_and_a_provider_is_told_of_none(server: Scripted) -> None:
    with connect(server.url, ledger=None) as con:
        for _ in range(2):
            con.sql("SELECT LLM('How is it?', 1)")
    first, second = (body["vllm_xargs"] for body in server.asked)
    assert first["relquery"] != second["relquery"]
    with connect("openai:tiny", base_url=server.url, api_key="none", ledger=None) as con:
        con.sql("SELECT LLM('How is it?', 1)")
    assert "vllm_xargs" not in server.asked[-1]


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/v1", "http://127.0.0.1:9"])
def test_a_server_that_is_not_there_is_said_at_once(url: str) -> None:
    with pytest.raises(ModelError, match="Start the server, or check the address"):
        connect(url)


def test_wrong_options_are_refused(server: Scripted) -> None:
    for name, options, said in (
        ("demo", {"model": "demo"}, "Give one of them"),
        ("demo", {"budget": "1USD"}, "budget is an option of models that a server answers for"),
        ("demo", {"rpm": 9, "tpm": 9}, "rpm and tpm are options .* Leave them out"),
        (None, {}, "Give a model name"),
        (server.url, {"max_concurency": 2}, "Did you mean 'max_concurrency'"),
        (server.url, {"relqueries": "sglang"}, "relqueries is 'sglang'"),
    ):
        with pytest.raises(ConfigError, match=said):
            connect(name, **options)


def test_a_model_of_a_provider_is_told_what_would_work() -> None:
    for model, remedy in cases(__file__, "remedies"):
        with pytest.raises(ConfigError) as caught:
            load(model)
        assert model in str(caught.value)
        assert remedy in str(caught.value)


def test_other_names_are_the_engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gpt-4o").mkdir()
    opened: list[tuple[str, dict[str, Any]]] = []
    monkeypatch.setattr(local, "load_backend", lambda name, **given: opened.append((name, given)))
    names = ["gpt2", "openai-gpt", "openai/gpt-oss-20b", "EleutherAI/gpt-neo-125m"]
    names += ["umd/claude2-alpaca", "CohereForAI/command-r", "random:layers=1", "demo"]
    names += ["C:\\models\\mine", "/models/gpt-4o", "olmo", "o200k", "gpt-4o"]
    for name in names:
        load(name, dtype="float32")
    assert opened == [(name, {"dtype": "float32"}) for name in names]
