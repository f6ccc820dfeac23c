"""What a backend tells before it is asked is what it does then."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

import pytest

from relquery import demo_table
from relquery.backends import base
from relquery.backends.base import Adopted, Answers, Backend, LazyBackend, Limits
from relquery.backends.local.embedded import EmbeddedBackend
from relquery.backends.local.open import load_backend
from relquery.connection import connect
from relquery.engine.cost import LinearCost
from relquery.errors import PartialResultWarning
from relquery.prompt import Prompt, Role, Sampling, Span

MODEL = "random:layers=1,hidden=64,heads=1"
COST = LinearCost(0.001, 0.1, 0.002, 0.2)
PROMPT = (Span("Be brief.", Role.SYSTEM), Span("Which?"))


@pytest.fixture(scope="module")
def backend() -> Iterator[EmbeddedBackend]:
    backend = load_backend(MODEL, cost=COST, max_num_batched_tokens=64, max_num_seqs=2)
    yield backend
    backend.close()


class Provider:
    """Tells nothing beforehand."""

    name = "provider"

    def answer(self, prompts: Sequence[Prompt], sampling: Sampling) -> Answers:
        raise AssertionError

    def close(self) -> None:
        pass


def test_one_pass_is_what_a_request_takes_that_decodes_nothing(backend: EmbeddedBackend) -> None:
    many = tuple(map("".join, product("abcdefgh", repeat=3)))
    for sampling, expected in (
        (Sampling(labels=("Yes", "No")), True),
        (Sampling(labels=("Yes", "No"), temperature=1.0), False),
        (Sampling(labels=many), False),
        (Sampling(max_tokens=1), True),
        (Sampling(), False),
    ):
        assert backend.one_pass(sampling) is expected


def test_prompt_tokens_are_those_of_the_answers(backend: EmbeddedBackend) -> None:
    long = (Span("word " * 40_000),)
    prompts, sampling = [PROMPT, PROMPT[1:], (Span("\ud800"),), long], Sampling(max_tokens=1)
    answers = dict(backend.answer(prompts, sampling))
    counts = backend.prompt_tokens(prompts, sampling)
    assert counts is not None
    assert counts[:2] == [answers[at].prompt_tokens for at in range(2)]
    assert counts[2:] == [0, 0]


def test_seconds_are_those_of_all_steps_with_nothing_reused(backend: EmbeddedBackend) -> None:
    one_token, three = Sampling(max_tokens=1), Sampling(max_tokens=3)
    prefill = 0.001 * 100 + 2 * 0.1  # 100 tokens in two steps
    decode = 2 * (0.002 * 4 + 2 * 0.2)  # twice: four requests in two steps
    assert backend.predict([25] * 4, one_token) == pytest.approx(prefill)
    assert backend.predict([25] * 4, three) == pytest.approx(prefill + decode)
    assert backend.predict([], three) == 0


def test_what_a_provider_does_not_tell_is_none() -> None:
    adopted: Backend = Adopted(Provider())
    for backend in (adopted, LazyBackend(lambda: adopted)):
        assert backend.known_as() == ("provider",)
        assert backend.limits == Limits()
        insight = backend.insight
        assert insight.inspect(PROMPT) is None
        assert insight.one_pass(Sampling()) is None
        assert insight.prompt_tokens([PROMPT], Sampling()) is None
        assert insight.predict([3], Sampling()) is None


def test_a_clock_stands_still_while_a_backend_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(base, "perf_counter", lambda: now)

    def load() -> Backend:
        nonlocal now
        now += 5
        return Adopted(Provider())

    backend = LazyBackend(load)
    start = backend.clock()
    for wait in (1, 2):
        now += wait
        assert backend.name == "provider"
    assert backend.clock() - start == 3


def test_a_lazy_backend_hands_on_all_that_a_backend_is_asked() -> None:
    asked = {name for name in vars(Backend) if not name.startswith("_")}
    assert asked <= vars(LazyBackend).keys()
    assert len(asked) <= 8


def test_a_lazy_backend_tells_what_the_opened_one_tells(backend: EmbeddedBackend) -> None:
    lazy = LazyBackend(lambda: backend)
    assert lazy.insight is backend.insight
    assert lazy.limits == backend.limits
    assert lazy.limits.cache_tokens == backend.config.cache_tokens


def test_an_explained_query_is_as_its_report_says_with_the_demo_model() -> None:
    query = (
        "SELECT movietitle, LLM('Which genre?', movies.*, max_tokens := 1) FROM movies "
        "WHERE year > {} AND LLM('Is the review positive? Answer Yes or No.', reviewcontent, "
        "labels := ['Yes', 'No']) = 'Yes'"
    )
    with connect("demo") as con:
        con.register("movies", demo_table("movies"))
        many = con.sql(f"EXPLAIN {query.format(2015)}").arrow().to_pylist()
        few = con.sql(f"EXPLAIN {query.format(2019)}").arrow().to_pylist()
        with pytest.warns(PartialResultWarning):  # of genres that are longer than a token
            stages = con.sql(query.format(2019)).report.stages
    assert [row["answers"] for row in many] == [
        "one forward pass, 2 labels",
        "one forward pass, 1 token",
    ]
    assert [(row["rows"], row["calls"], row["prompt_tokens"], row["counts"]) for row in many] == [
        (122, 121, 10_233, "exact"),
        (122, 122, 19_679, "at most"),
    ]
    assert [row["stage"] for row in few] == [stage.name for stage in stages]
    told, was = few[0], stages[0]
    assert told["rows"] == was.rows
    assert told["calls"] == was.calls
    assert told["prompt_tokens"] == was.prompt_tokens
    assert stages[1].rows <= few[1]["rows"]
    assert stages[1].prompt_tokens <= few[1]["prompt_tokens"]
