"""Modules, classes and attributes of LOTUS import; what is not supported is refused by its name."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pydantic import BaseModel

from relquery.backends.base import Answers, Backend
from relquery.connection import Connection, connect
from relquery.errors import ConfigError
from relquery.frames import lotus
from relquery.frames.lotus import models
from relquery.frames.lotus.cache import CacheConfig, CacheFactory, CacheType
from relquery.frames.lotus.models import LM
from relquery.frames.lotus.refused import NAMES, PACKAGE, refuse_imports
from relquery.frames.lotus.settings import Settings
from relquery.frames.lotus.templates.task_instructions import df2text
from relquery.prompt import Answer, Finish, Prompt, Sampling
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

    monkeypatch.setattr(models.lm, "connect", connect)
    return asked


def test_names_and_modules_of_lotus_import_and_are_refused_when_they_are_used() -> None:
    assert {"Optimizer", "Corpus", "web_search", "web_extract"} <= set(NAMES)
    for name in NAMES:
        with pytest.raises(ConfigError, match=f"^{name} is not supported"):
            getattr(lotus, name)()
    refuse_imports()
    for module in ("ast.nodes", "data_connectors", "nl_expression", "evals", "ast.optimizer.deep"):
        found = importlib.import_module(f"{PACKAGE}.{module}")
        with pytest.raises(ConfigError, match=f"^Thing is not supported. It is of lotus.{module}"):
            found.Thing(1)
        with pytest.raises(ConfigError, match=r"^Thing is not supported"):
            found.Thing.SOME  # noqa: B018
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(f"{PACKAGE}.caches_")


def test_names_that_lotus_does_not_have_either_are_no_names() -> None:
    assert not hasattr(lotus, "sum")
    assert not hasattr(lotus.types, "Sum")
    with pytest.raises(ConfigError, match=r"sem_map is not supported.*df.sem_map"):
        lotus.sem_map()
    with pytest.raises(ConfigError, match="RMOutput is not supported"):
        lotus.types.RMOutput()


def test_settings_are_read_by_their_names_and_belong_to_a_block(con: Connection) -> None:
    settings = Settings()
    assert (settings.lm, settings.enable_cache) == (None, False)
    settings.configure(enable_cache=True)
    with settings.context(enable_cache=False, lm=LM(model=con)) as inner:
        assert inner is settings
        assert settings.lm is not None
        assert not settings.enable_cache
    assert settings.enable_cache
    for wrong in ({"enable_cach": True}, {"serialization_format": "xml"}, {"rm": "encoder"}):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            settings.configure(**wrong)
    assert not hasattr(settings, "sum")


def test_json_is_a_form_of_prompts_and_xml_is_refused_where_it_is_used(con: Connection) -> None:
    formats = lotus.types.SerializationFormat
    with lotus.settings.context(lm=LM(model=con), serialization_format=formats.JSON):
        assert len(TABLE.sem_map("Say {t}")) == 2
        assert df2text(TABLE, ["t", "u"]) == ['{"t":"Algebra"}', '{"t":"Logic"}']
    with lotus.settings.context(lm=LM(model=con), serialization_format=formats.XML):
        assert df2text(TABLE, ["t"]) == ["<row><t>Algebra</t></row>", "<row><t>Logic</t></row>"]
        with pytest.raises(ConfigError, match="serialization_format is XML"):
            TABLE.sem_map("Say {t}")
    assert df2text(TABLE, ["t"])[0] == "[T]: «Algebra»\n"


def test_a_model_takes_what_the_provider_and_the_verbs_take(opened: list[object]) -> None:
    lm = LM("gpt-5", 0.5, 128000, 99, 7, 90, seed=3, top_p=0.9, timeout=5.0, num_retries=1)
    assert lm.drawing() == {"max_tokens": 99, "temperature": 0.5, "seed": 3, "top_p": 0.9}
    lm.connection(None)
    options = {"max_concurrency": 7, "timeout": 5.0, "max_retries": 1, "rpm": 90}
    assert opened == [("openai:gpt-5", options)]
    assert LM("some/model", max_batch_size=64).options == {}
    assert LM("gpt-4o", rate_limit=30).max_batch_size == 30
    assert [LM(name).max_tokens for name in ("gpt-5", "openai/o3-mini", "gpt-4o")] == [
        8192,
        8192,
        512,
    ]


def test_other_arguments_of_a_model_are_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="'temprature' of LM is not known") as error:
        LM("gpt-5", temprature=0.5)
    for name in ("reasoning_effort", "max_ctx_len"):
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


def test_a_cache_makes_a_second_run_free_and_can_be_reset() -> None:
    backend = FakeBackend(answer)
    with connect(backend) as con, lotus.settings.context(lm=LM(model=con), enable_cache=True):
        lm = lotus.settings.lm
        for hits in (0, 1):
            TABLE.sem_map("Say {t}")
            assert (lm.calls, lm.stats.operator_cache_hits) == (2, hits)
        used = lm.stats.physical_usage.total_tokens
        assert lm.stats.virtual_usage.total_tokens == 2 * used > 0
        TABLE.head(1).sem_map("Say {t}")
        assert (lm.calls, lm.stats.cache_hits) == (2, 1)
        lm.reset_cache()
        TABLE.sem_map("Say {t}")
        assert (lm.calls, lm.stats.operator_cache_hits) == (4, 1)
        with lotus.settings.context(enable_cache=False):
            TABLE.sem_map("Say {t}")
        assert lm.calls == 6


def test_a_limit_of_use_ends_what_is_beyond_it(con: Connection) -> None:
    LM(model=con, physical_usage_limit=lotus.types.UsageLimit())
    limit = lotus.types.UsageLimit(total_tokens_limit=10)
    with (
        lotus.settings.context(lm=LM(model=con, physical_usage_limit=limit)),
        pytest.raises(lotus.types.LotusUsageLimitException, match="total_tokens"),
    ):
        TABLE.sem_map("Say {t} of the limit")


def test_a_model_is_called_with_conversations(tmp_path: Path) -> None:
    class Echo(Backend):
        name = "echo"

        def answer(self, prompts: Sequence[Prompt], sampling: Sampling) -> Answers:
            for at, prompt in enumerate(prompts):
                said = "|".join(f"{span.role.value}:{span.content}" for span in prompt)
                yield at, Answer(said, Finish.STOP, prompt_tokens=5, output_tokens=2)

    config = CacheConfig(CacheType.SQLITE, cache_dir=str(tmp_path))
    system, user = {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}
    for hits in (0, 1):
        lm = LM(model=Echo(), cache=CacheFactory.create_cache(config))
        with lotus.settings.context(enable_cache=True):
            assert lm([[system, user]]).outputs == ["system:Be brief.|user:Hi"]
        assert (lm.stats.cache_hits, lm.calls) == (hits, 1 - hits)
        assert lm([user]).outputs == ["user:Hi"]
        assert lm.count_tokens([system]) == lm.count_tokens("Be brief.") > 0
    with pytest.raises(ConfigError, match="role 'robot'"):
        lm([[{"role": "robot", "content": ""}]])
    with pytest.raises(ConfigError, match="decode_tokens of an LM is not supported"):
        lm.decode_tokens([])
    assert not hasattr(lm, "sum")


def test_verbs_that_compare_texts_need_no_language_model() -> None:
    texts: Any = pd.DataFrame({"t": ["red apple", "blue sea", "red apples", "blue seas"]})
    with lotus.settings.context(lm=None, rm=None):
        assert texts.sem_search("t", "apple", K=1)["t"].tolist() == ["red apple"]
        assert len(texts.sem_dedup("t", 0.7)) == 2
        assert len(texts.sem_sim_join(texts, "t", "t", 1, "_l", "_r")) == 4
        groups = texts.sem_cluster_by("t", 2)["cluster_id"].tolist()
        assert groups[0] == groups[2] != groups[1] == groups[3]
        assert len(texts.head(0).sem_cluster_by("t", 2)) == 0
        with pytest.raises(ConfigError, match="Column 'u' not found in DataFrame"):
            texts.sem_cluster_by("u", 2)
        with pytest.raises(ConfigError, match="No language model is configured"):
            texts.sem_search("t", "apple", n_rerank=1)


def test_a_model_reasons_before_it_answers_and_may_tell_why() -> None:
    def reason(query: str, fields: Any) -> str:
        assert "You are terse" in query
        names = re.findall(r'"(\w+)": ', query.partition("\nAnswer in JSON")[2])
        is_hard = fields["t"] == "Logic"
        return json.dumps({name: "because" if "expl" in name else is_hard for name in names})

    with connect(FakeBackend(reason)) as con, lotus.settings.context(lm=LM(model=con)):
        said = {"system_prompt": "You are terse", "strategy": "cot"}
        assert TABLE.sem_filter("{t} is hard", **said)["t"].tolist() == ["Logic"]
        found = TABLE.sem_filter("{t} is hard", return_all=True, return_explanations=True, **said)
        assert list(found.columns) == ["t", "_filter", "explanation_filter"]
        assert found["_filter"].tolist() == [False, True]
        found = TABLE.sem_map("Say {t}", return_explanations=True, **said)
        assert found["explanation_map"].tolist() == ["because"] * 2


def test_judges_are_maps_and_classes() -> None:
    texts: Any = pd.DataFrame({"a": ["long answer", "no"], "b": ["no", "long answer"]})

    class Score(BaseModel):
        score: int
        why: str

    def judge(query: str, fields: Any) -> str:
        if "Answer in JSON" in query:
            return json.dumps({"score": len(fields["a"]), "why": "long"})
        if "better" not in query:
            return "7"
        first, second = fields.values()
        return "A" if len(first) > len(second) else "B"

    with connect(FakeBackend(judge)) as con, lotus.settings.context(lm=LM(model=con)):
        assert texts.llm_as_judge("Rate {a}", n_trials=2)["_judge_1"].tolist() == ["7", "7"]
        found = texts.pairwise_judge("a", "b", "Compare {a} and {b}", n_trials=2, permute_cols=True)
        assert found["_judge_0"].tolist() == ["A", "B"]
        found = texts.llm_as_judge("Rate {a}", response_format=Score)["_judge_0"]
        assert found.tolist() == [Score(score=11, why="long"), Score(score=2, why="long")]
        with pytest.raises(ConfigError, match="a class of pydantic"):
            texts.llm_as_judge("Rate {a}", response_format=int)


def test_a_lazy_frame_makes_its_calls_when_it_is_executed(con: Connection) -> None:
    other = lotus.LazyFrame()
    left = lotus.LazyFrame(df=TABLE).sem_map("Say {t}").filter(lambda table: table["t"] > "B")
    whole = left.merge(other, on="t")["u"].to_list()
    with lotus.settings.context(lm=LM(model=con)):
        given = {other: TABLE.assign(u=[1, 2])}
        assert whole.execute(given) == [2]
        pair = lotus.LazyFrame.concat([left, other], axis=1).execute(given)
        assert list(pair.columns) == ["t", "_map", "t", "u"]
    with pytest.raises(ConfigError, match="has no rows"):
        other.head(1).execute()
    with pytest.raises(ConfigError, match="optimize of a LazyFrame is not supported"):
        left.optimize([])
    assert not hasattr(left, "sum_up")
