"""What LOTUS's documentation shows runs with the import changed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pytest

from relquery.connection import Connection
from relquery.errors import ConfigError, ModelError
from relquery.frames import lotus
from relquery.frames.lotus import models, types
from relquery.frames.lotus.models import (
    LM,
    ColBERTv2RM,
    CrossEncoderReranker,
    SentenceTransformersRM,
)
from relquery.frames.lotus.models.lm import named
from relquery.frames.lotus.vector_store import QdrantVS
from tests.cases import case_file
from tests.frames.model import chance, mapped, says_yes

BEGIN, *EXAMPLES = (Path(__file__).parent / "examples.txt").read_text("utf-8").split("\n## ")
COURSES: Any = pd.DataFrame({"name": ["Algebra", "Logic", "Cooking"]}, index=[7, 8, 9])


@pytest.fixture(autouse=True)
def opened(con: Connection, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, Any]]]:
    """Models are opened as one connection; gives the names and options that were asked for."""
    asked: list[tuple[str, Any]] = []

    def connect(model: str, **options: Any) -> Connection:
        asked.append((model, options))
        return con

    monkeypatch.setattr(models.lm, "connect", connect)
    given = vars(lotus.settings)["_given"]
    before = dict(given)
    lotus.settings.configure(lm=LM(), rm=None)
    yield asked
    given.clear()
    given.update(before)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.partition(":")[0])
def test_an_example_of_the_documentation_runs(
    example: str, capsys: pytest.CaptureFixture[str]
) -> None:
    head, _, code = example.partition("\n")
    name, _, columns = head.partition(": ")
    names: dict[str, Any] = {}
    exec(f"{BEGIN}\n{code}", names)
    result = names["result"]
    assert isinstance(result, pd.DataFrame)
    assert list(result.columns) == columns.split(", ")
    assert len(result) or name == "filter"
    if "print" in code:
        assert capsys.readouterr().out.strip()


def test_rows_are_those_that_the_model_answers() -> None:
    claim = 'Is this true? "name" is hard'
    hard = [says_yes(claim, {"name": name}) for name in COURSES["name"]]
    kept = COURSES.sem_filter("{name} is hard")
    assert kept.index.tolist() == [at for at, yes in zip(COURSES.index, hard, strict=True) if yes]
    asked = COURSES.sem_filter("{name} is hard", return_all=True)
    assert asked["_filter"].tolist() == hard
    said = COURSES.sem_map("Say {name}")
    assert said["_map"].tolist() == [
        mapped('Say "name"', {"name": name}) for name in COURSES["name"]
    ]

    def score(name: str) -> float:
        query = 'Is this a good match for: Which "name" is best?\nAnswer Yes or No.'
        return chance(query, {"name": name})

    best = COURSES.sem_topk("Which {name} is best?", 2)
    assert best["name"].tolist() == sorted(COURSES["name"], key=score)[:0:-1]
    assert best.index.tolist() == [0, 1]


def test_every_verb_has_an_async_form() -> None:
    verbs = [name for name in dir(pd.DataFrame) if name.startswith("sem_")]
    assert len(verbs) == 12
    assert all(hasattr(pd.DataFrame, f"a{name}") for name in verbs)

    async def main() -> list[Any]:
        filters = (COURSES.asem_filter("{name} is hard") for _ in range(3))
        indexed = await COURSES.asem_index("name", index_dir="dir")
        return [*await asyncio.gather(*filters), await indexed.asem_search("name", "logic", K=1)]

    *filtered, found = asyncio.run(main())
    again = COURSES.sem_filter("{name} is hard")
    assert all(one.equals(again) for one in filtered)
    assert found["name"].tolist() == ["Logic"]


def test_safe_mode_prints_what_would_be_asked(capsys: pytest.CaptureFixture[str]) -> None:
    COURSES.sem_map("Say {name}", safe_mode=True)
    assert "1 LLM expression" in capsys.readouterr().out


def test_models_have_relquery_s_names(opened: list[tuple[str, Any]]) -> None:
    assert named("gpt-4o-mini") == ("openai:gpt-4o-mini", {})
    assert named("openai/o3") == ("openai:o3", {})
    assert named("ollama/llama3.2")[0] == "openai:llama3.2"
    assert named("demo") == ("demo", {})
    assert named("anthropic/claude-x") == ("anthropic:claude-x", {})
    assert named("gemini/gemini-x") == ("gemini:gemini-x", {})
    with pytest.raises(ConfigError, match="names the provider groq"):
        named("groq/llama3-8b")
    server = LM("hosted_vllm/meta-llama/Llama-3", api_base="http://localhost:1/v1")
    with lotus.settings.context(lm=server, rm=SentenceTransformersRM("some/encoder")):
        COURSES.sem_map("Say {name}")
    assert opened == [
        (
            "openai:meta-llama/Llama-3",
            {"base_url": "http://localhost:1/v1", "embedder": "some/encoder"},
        )
    ]


def test_a_connection_may_be_the_model(con: Connection) -> None:
    assert LM(model=con).connection(None) is con


def test_what_is_not_supported_is_refused_by_name() -> None:
    for verb, given in case_file(__file__, "unsupported.txt"):
        arguments = eval(given, {**vars(types), "COURSES": COURSES})
        named = next(iter(arguments), verb)
        with pytest.raises(ConfigError, match=named):
            getattr(COURSES, verb)("Say {name}", **arguments)


def test_the_other_side_of_a_join_is_a_table_of_pandas() -> None:
    with pytest.raises(ConfigError, match=r"is a LazyFrame; .*rq.frame\(...\).sem_join"):
        COURSES.sem_join(pl.LazyFrame({"x": ["a"]}), "{name} is {x}")


def test_a_model_of_another_provider_is_refused_when_it_is_made() -> None:
    for model in ("cohere/command-r", "groq/llama3-8b", "openrouter/x/y"):
        with pytest.raises(ConfigError, match=r"the provider.*LM\(model='openai/NAME', api_base"):
            LM(model)


def test_a_model_of_this_machine_is_loaded_when_it_is_made(
    monkeypatch: pytest.MonkeyPatch, opened: list[tuple[str, Any]], con: Connection
) -> None:
    lm = LM("some/model")
    assert lm.connection(None) is con
    lm.connection("some/encoder")
    assert opened == [("some/model", {}), (con.backend, {"embedder": "some/encoder"})]

    def missing(model: str) -> Connection:
        raise ModelError(f"Model '{model}' is not found.")

    monkeypatch.setattr(models.lm, "connect", missing)
    with pytest.raises(ModelError, match=r"'who/x' is not found.*api_base='https://...'\)"):
        LM("who/x")


def test_settings_and_stores_that_are_not_supported_are_refused() -> None:
    with pytest.raises(ConfigError, match="serialization_format"):
        lotus.settings.configure(serialization_format="xml")
    with pytest.raises(ConfigError, match="QdrantVS"):
        QdrantVS(None)
    with pytest.raises(ConfigError, match="ColBERTv2RM"):
        ColBERTv2RM()
    with pytest.raises(ConfigError, match="must be made by a class of models"):
        lotus.settings.configure(lm="gpt-4o")
    with pytest.warns(UserWarning, match="n_rerank ranks with the language model"):
        lotus.settings.configure(reranker=CrossEncoderReranker(model="x"))
    with (
        lotus.settings.context(lm=None),
        pytest.raises(ConfigError, match="No language model is configured"),
    ):
        COURSES.sem_map("Say {name}")


def test_the_logger_is_relquery_s() -> None:
    assert lotus.logger is logging.getLogger("relquery")
