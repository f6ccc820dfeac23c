"""Adapters of one engine: by name, beside one another, and with states and answers of their own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from relquery.backends.arguments import split_adapter
from relquery.backends.base import Backend
from relquery.backends.local.open import load_backend
from relquery.backends.local.service import Engine
from relquery.connection import connect
from relquery.errors import ConfigError, ModelError
from relquery.model.networks.random import RandomSpec, RandomWeights
from relquery.prompt import Prompt, Reuse, Sampling, Span
from tests.model.oracle.adapters import write_adapter

MODEL = "random:layers=2,hidden=64,heads=2,context=512,seed=3"
TEXTS = [f"{'Is it good?' * (at % 3)} Text {at}" for at in range(12)]
SAMPLING = Sampling(max_tokens=6)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Two adapters by name."""
    weights = RandomWeights(RandomSpec.parse(MODEL), 100)
    shapes = {name: weights[name].shape for name in weights}
    at = tmp_path_factory.mktemp("adapters")
    return {
        name: str(write_adapter(at / name, shapes, seed=seed, by=0.1))
        for seed, name in enumerate(("one", "two"))
    }


@pytest.fixture(scope="module")
def engine(folders: dict[str, str]) -> Iterator[Engine]:
    with Engine(MODEL, adapters=folders, cache_tokens=4096) as engine:
        yield engine


def asked(backend: Backend) -> list[str | None]:
    answers = dict(backend.answer([(Span(text),) for text in TEXTS], SAMPLING))
    return [answers[at].text for at in range(len(TEXTS))]


def alone(model: str) -> list[str | None]:
    with closing(load_backend(model, cache_tokens=4096)) as backend:
        return asked(backend)


def test_adapters_of_one_engine_answer_together_as_each_does_alone(
    engine: Engine, folders: dict[str, str]
) -> None:
    names = ["", "one", "two"]
    jobs = [engine.submit(TEXTS, max_tokens=6, adapter=name) for name in names]
    found = [[answer.text for answer in job.result()] for job in jobs]
    assert found == [alone(MODEL), *(alone(f"{MODEL}+{folders[each]}") for each in names[1:])]
    assert found == [asked(engine.backend(adapter=name)) for name in names]
    assert len({str(each) for each in found}) == 3


def test_a_statement_is_answered_by_the_adapter_that_the_model_names(
    engine: Engine, folders: dict[str, str]
) -> None:
    statement = (
        "SELECT AI_CLASSIFY('text ' || i, ['good', 'bad', 'odd', 'fine']) FROM range(8) AS t(i)"
    )
    results = []
    for source in (
        connect(f"{MODEL}+{folders['one']}", cache_tokens=4096),
        connect(engine.backend(adapter="one")),
        connect(engine.backend()),
    ):
        with source as connection:
            results.append(connection.sql(statement).fetchall())
    assert results[0] == results[1] != results[2]


def test_the_ledger_knows_each_adapter_by_its_weights(
    engine: Engine, folders: dict[str, str]
) -> None:
    known = [engine.backend(adapter=name).known_as() for name in ("", "one", "two")]
    assert len(set(known)) == 3
    with closing(load_backend(f"{MODEL}+{folders['two']}")) as backend:
        assert backend.known_as() == known[2]
        assert backend.name.startswith(f"{MODEL}+{folders['two']}@")
    with closing(load_backend(MODEL)) as plain:
        assert plain.known_as() == known[0]


def module(text: str) -> Prompt:
    return Span(text, reuse=Reuse.INDEPENDENT, keep=1), Span(" Go on.")


def cached(backend: Backend, prompt: Prompt) -> list[str]:
    """Where the states of a prompt's span are."""
    return [state.source for state in backend.insight.inspect(prompt) or () if state.span]


def test_modules_are_prepared_for_one_adapter_alone(engine: Engine) -> None:
    prompt = module("A text that many prompts read." * 3)
    engine.prepare([prompt], adapter="two")
    found = {name: cached(engine.backend(adapter=name), prompt) for name in ("", "one", "two")}
    assert found == {"": [""], "one": [""], "two": ["cache"]}
    prompt = module("Another text that many prompts read.")
    engine.backend(adapter="one").insight.prepare([prompt])
    found = {name: cached(engine.backend(tenant="t", adapter=name), prompt) for name in found}
    assert found == {"": [""], "one": ["cache"], "two": [""]}


def test_states_on_disk_are_those_of_one_adapter(folders: dict[str, str], tmp_path: Path) -> None:
    prompt = module("A text that many prompts read." * 3)
    options = {"adapters": folders, "cache_tokens": 2048, "store": str(tmp_path)}
    with Engine(MODEL, **options) as engine:  # type: ignore[arg-type]
        engine.prepare([prompt], adapter="one")
    swapped = {"one": folders["two"], "two": folders["one"]}
    with Engine(MODEL, **options | {"adapters": swapped}) as engine:  # type: ignore[arg-type]
        found = {name: cached(engine.backend(adapter=name), prompt) for name in ("", "one", "two")}
    assert found == {"": [""], "one": [""], "two": ["disk"]}


def test_an_adapter_that_is_not_there_is_named(engine: Engine) -> None:
    asks: list[Any] = [partial(engine.submit, TEXTS), engine.backend]
    for name in ("thre", ["thre"]):
        for ask in asks:
            with pytest.raises(ConfigError, match=r"thre.* Known: one, two"):
                ask(adapter=name)
    with pytest.raises(ModelError, match=r"Adapter './nowhere' .*|adapter folder ./nowhere"):
        load_backend(f"{MODEL}+./nowhere")
    with pytest.raises(ConfigError, match="adapters is 'one'"):
        load_backend(MODEL, adapters="one")


def test_a_folder_may_have_a_plus_in_its_name(tmp_path: Path) -> None:
    (tmp_path / "a+b").mkdir()
    with pytest.raises(ModelError, match=r"no config\.json"):
        load_backend(str(tmp_path / "a+b"))
    adapter = f"{tmp_path}/a+b"
    assert split_adapter(f"owner/name+{adapter}") == ("owner/name", adapter)
    assert split_adapter("name+") == ("name+", "")
    assert split_adapter(f"{tmp_path}/a+c+{adapter}") == (f"{tmp_path}/a+c", adapter)
    assert split_adapter("owner/name+other/a+b") == ("owner/name+other/a", "b")
