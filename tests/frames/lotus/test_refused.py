"""Modules, classes and attributes of LOTUS import, or are refused by their names."""

from __future__ import annotations

import importlib
from typing import Any

import pandas as pd
import pytest

from relquery.connection import Connection, connect
from relquery.errors import ConfigError
from relquery.frames import lotus
from relquery.frames.lotus import models
from relquery.frames.lotus.models import LM
from relquery.frames.lotus.refused import NAMES, PACKAGE, refuse_imports
from relquery.frames.lotus.types import SerializationFormat
from tests.frames.model import answer
from tests.sql.fakes import FakeBackend

TABLE: Any = pd.DataFrame({"t": ["Algebra", "Logic"]})


@pytest.fixture
def opened(con: Connection, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What `connect` was asked for."""
    asked: list[object] = []

    def connect(model: str, **options: object) -> Connection:
        asked.append((model, options))
        return con

    monkeypatch.setattr(models, "connect", connect)
    return asked


def test_names_and_modules_of_the_package_are_refused() -> None:
    assert {"LazyFrame", "Corpus", "web_search", "web_extract"} <= set(NAMES)
    for name in NAMES:
        with pytest.raises(ConfigError, match=f"^{name} is not supported"):
            getattr(lotus, name)
    refuse_imports()
    for name in ("cache", "data_connectors", "nl_expression", "evals"):
        with pytest.raises(ConfigError, match=f"^{name} is not supported"):
            importlib.import_module(f"{PACKAGE}.{name}")
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module(f"{PACKAGE}.{name}s_")


def test_names_that_lotus_does_not_have_either_are_no_names() -> None:
    assert not hasattr(lotus, "sum")
    assert not hasattr(lotus.types, "Sum")
    with pytest.raises(ConfigError, match=r"sem_map of the module.*df.sem_map"):
        lotus.sem_map  # noqa: B018
    with pytest.raises(ConfigError, match="LMOutput is not supported"):
        lotus.types.LMOutput  # noqa: B018


def test_a_prompt_in_another_format_is_refused_in_settings() -> None:
    with lotus.settings.context(serialization_format=SerializationFormat.DEFAULT):
        pass
    with pytest.raises(ConfigError, match="settings was given serialization_format"):
        lotus.settings.configure(serialization_format=SerializationFormat.XML)


def test_a_model_takes_what_the_provider_and_the_verbs_take(opened: list[object]) -> None:
    lm = LM("gpt-5", 0.5, 128000, 99, 7, seed=3, top_p=0.9, timeout=5.0, num_retries=1)
    assert lm.drawing() == {"max_tokens": 99, "temperature": 0.5, "seed": 3, "top_p": 0.9}
    lm.connection(None)
    options = {"max_concurrency": 7, "timeout": 5.0, "max_retries": 1}
    assert opened == [("openai:gpt-5", options)]
    assert LM("some/model", max_batch_size=64).options == {}
    assert [LM(name).max_tokens for name in ("gpt-5", "openai/o3-mini", "gpt-4o")] == [
        8192,
        8192,
        512,
    ]


def test_other_arguments_of_a_model_are_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="'temprature' of LM is not known") as error:
        LM("gpt-5", temprature=0.5)
    for name in ("reasoning_effort", "rate_limit", "tpm_limit", "tokenizer"):
        with pytest.raises(ConfigError, match=f"LM was given {name}, which is not supported"):
            LM("gpt-5", **{name: 3})  # type: ignore[arg-type]
        assert name not in str(error.value)


def test_usage_is_told_as_lotus_tells_it(capsys: pytest.CaptureFixture[str]) -> None:
    with connect(FakeBackend(answer)) as con, lotus.settings.context(lm=LM(model=con)):
        for _ in range(2):
            TABLE.sem_map("Say {t}")
        lm = lotus.settings.lm
        usage = lm.stats.physical_usage
        assert (lm.calls, lm.stats.cache_hits) == (2, 2)
        assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens > 0
        lm.print_total_usage()
        assert capsys.readouterr().out.startswith(f"2 calls, {usage.prompt_tokens:,} prompt")
        lm.reset_stats()
        assert lm.stats.physical_usage.total_tokens == lm.calls == 0


def test_what_is_not_counted_is_refused_by_name(con: Connection) -> None:
    lm = LM(model=con)
    with pytest.raises(ConfigError, match="total_cost is not supported"):
        lm.stats.physical_usage.total_cost  # noqa: B018
    with pytest.raises(ConfigError, match="virtual_usage is not supported"):
        lm.stats.virtual_usage  # noqa: B018
    with pytest.raises(ConfigError, match="reset_cache of an LM is not supported"):
        lm.reset_cache()
    with pytest.raises(ConfigError, match="An LM is not called"):
        lm([[]])
    assert not hasattr(lm, "sum")
