"""Scoring as users see it: a mapping from label to probability per prompt, in one pass."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import cache
from math import exp, fsum, inf
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from tokenizers.normalizers import Lowercase
from transformers import AutoModelForCausalLM

from benchmarks.stock import stock_network
from relquery.backends.local.embedded import EmbeddedBackend
from relquery.backends.local.labels import SCORED_UNASKED, Labels
from relquery.backends.local.open import load_backend
from relquery.backends.local.service import Engine
from relquery.demo.files import model_path
from relquery.engine.cost import LinearCost
from relquery.engine.requests.labels import Normalization
from relquery.errors import ConfigError
from relquery.model.native_runtime import NativeExecutor
from relquery.model.networks.random import byte_tokenizer
from relquery.prompt import Answer, Finish, Prompt, Sampling, Span
from tests.cases import cases

MODEL = "random:layers=2,hidden=64,heads=2,context=256,seed=3"
COST = LinearCost(1e-4, 1e-3, 1e-4, 1e-3)
LABELS = ["Yes", "No", "Yes, but", " Yes", "é", "日本"]
MANY = [f"{7919 * number % 10**6:06}" for number in range(300)]
PROMPTS = [f"Is row {n} good?" for n in range(12)]


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine(MODEL, cost=COST, cache_tokens=2048) as engine:
        yield engine


@pytest.fixture(scope="module")
def backend() -> Iterator[EmbeddedBackend]:
    with closing(load_backend(MODEL, cache_tokens=2048)) as backend:
        yield backend


@pytest.fixture
def steps() -> Iterator[Any]:
    """The calls of each step that runs."""
    execute = NativeExecutor.execute
    with patch.object(NativeExecutor, "execute", autospec=True, side_effect=execute) as steps:
        yield steps


def check_empty(backend: EmbeddedBackend) -> None:
    loop = backend.engine
    assert not loop.waiting
    assert not loop.running
    loop.pool.check()
    assert loop.pool.held == 0


def answers_of(backend: EmbeddedBackend, prompts: list[str], **sampling: Any) -> list[Answer]:
    found = dict(backend.answer([(Span(text),) for text in prompts], Sampling(**sampling)))
    return [found[index] for index in range(len(prompts))]


@pytest.mark.parametrize("normalization", ["joint", "branch"])
def test_each_label_has_its_probability(engine: Engine, normalization: Normalization) -> None:
    found = engine.score(PROMPTS, labels=LABELS, normalization=normalization)
    assert len(found) == len(PROMPTS)
    for scores in found:
        assert list(scores.probabilities) == LABELS
        assert fsum(scores.probabilities.values()) == pytest.approx(1)
        assert scores.best == max(LABELS, key=scores.probabilities.__getitem__)
        assert scores.error is None
    assert len({tuple(scores.log_probabilities.values()) for scores in found}) == len(PROMPTS)
    assert engine.score([], labels=LABELS) == []


def test_one_step_serves_all_that_fit_into_it(backend: EmbeddedBackend, steps: Any) -> None:
    scored = backend.score(PROMPTS, labels=LABELS)
    assert steps.call_count == 1
    check_empty(backend)
    assert [list(one.probabilities) for one in scored] == [LABELS] * len(PROMPTS)


@cache
def stock(name: str) -> Any:
    load: Any = AutoModelForCausalLM.from_pretrained
    return load(model_path()) if name == "demo" else stock_network(name)


def stock_logs(backend: EmbeddedBackend, text: str, label: str) -> torch.Tensor:
    """(tokens, vocabulary) logits that a label's tokens are drawn from, of the stock network."""
    (chain,) = backend._renderer.render([(Span(text),)])
    prompt = np.concatenate([part for part in chain.parts if isinstance(part, np.ndarray)])
    tokens = [*prompt.tolist(), *backend._renderer.encode(label)]
    with torch.inference_mode():
        logits: torch.Tensor = stock(backend.model.name)(torch.tensor([tokens])).logits[0]
    return logits[len(prompt) - 1 : -1].double()


def stock_scores(backend: EmbeddedBackend, text: str, labels: Sequence[str]) -> list[float]:
    """Of each label the sum over its tokens of their log-probabilities; then a softmax."""
    sums = []
    for label in labels:
        logs = stock_logs(backend, text, label).log_softmax(-1)
        tokens = backend._renderer.encode(label)
        sums.append(float(sum(row[token] for row, token in zip(logs, tokens, strict=True))))
    return torch.tensor(sums).softmax(0).tolist()


def test_labels_that_differ_in_a_space_have_their_own_tokens(backend: EmbeddedBackend) -> None:
    labels = ["Yes", " Yes"]
    (joint,) = backend.score(["Is it?"], labels)
    wanted = stock_scores(backend, "Is it?", labels)
    assert list(joint.probabilities.values()) == pytest.approx(wanted, abs=1e-5)
    (branch,) = backend.score(["Is it?"], labels, normalization="branch")
    first = [backend._renderer.encode(label)[0] for label in labels]
    assert first[0] != first[1]
    wanted = stock_logs(backend, "Is it?", "Yes")[0][first].softmax(-1).tolist()
    assert list(branch.probabilities.values()) == pytest.approx(wanted, abs=1e-5)


MOODS = ["Positive mood", "Negative mood", "Neutral"]
REVIEWS = [
    "A dull film with a weak plot.",
    "A great film, I would see it again.",
    "Terrible acting and a boring story.",
    "A charming and clever comedy.",
]


def test_a_trained_model_is_asked_for_whole_labels_unless_the_way_is_laid_out() -> None:
    asked = [f"What is the mood of the review?\nreviewcontent: {text}\n" for text in REVIEWS]
    with closing(load_backend("demo", cache_tokens=2048)) as backend:
        joint = backend.score(asked, MOODS)
        branch = backend.score(asked, MOODS, normalization="branch")
        for scores, text in zip(joint, asked, strict=True):
            wanted = stock_scores(backend, text, MOODS)
            assert list(scores.probabilities.values()) == pytest.approx(wanted, abs=1e-4)
        decoded = answers_of(backend, asked, labels=MOODS)
    # Asked freely, this model would not go on to "mood"; once "Positive" stands, nothing else may.
    assert [scores.best for scores in joint] == ["Neutral"] * len(REVIEWS)
    assert [scores.best for scores in branch] == [answer.text for answer in decoded]
    assert {answer.text for answer in decoded} == {"Positive mood", "Negative mood"}


def test_a_single_label_has_probability_one(engine: Engine) -> None:
    short, long = engine.score(["x", "y" * 300], labels=["Yes"])
    assert short.probabilities == {"Yes": 1.0}
    assert long.best is None


def test_a_prompt_that_cannot_be_scored_leaves_the_others_theirs(engine: Engine) -> None:
    alone = engine.score(["x"], labels=LABELS)
    ids_too_high = (Span((3, 999)), Span("x"))
    asked: list[str | Prompt] = ["x", "y" * 300, "a\ud800", ids_too_high, "x"]
    good, long, text, ids, again = engine.score(asked, labels=LABELS)
    assert good.probabilities == pytest.approx(alone[0].probabilities, abs=1e-5)
    assert again.probabilities == pytest.approx(alone[0].probabilities, abs=1e-5)
    for failed, why in ((long, "256|255"), (text, "not valid Unicode"), (ids, "999")):
        assert failed.best is None
        assert failed.probabilities == {}
        assert re.search(why, str(failed.error))
        assert str(failed.error) in repr(failed)
    assert long.prompt_tokens == 0  # which nobody has read


def test_a_prompt_that_leaves_no_room_for_what_is_read_of_a_label_says_so(engine: Engine) -> None:
    room, labels = 256 - len("\nAnswer:"), ["Yes", "No"]
    fits, not_quite = engine.score(["x" * (room - 2), "x" * (room - 1)], labels=labels)
    assert fits.error is None
    assert "reading the labels takes 2 more" in str(not_quite.error)
    # Where they part, nothing of them has been read.
    (fits,) = engine.score(["x" * (room - 1)], labels=labels, normalization="branch")
    assert fits.error is None


def test_other_jobs_are_served_beside(engine: Engine) -> None:
    job = engine.submit(["tell me"], max_tokens=30)
    assert engine.score(["x"], labels=LABELS, tenant="a")[0].error is None
    assert job.result(30)[0].output_tokens == 30


def test_choices_are_scored_in_one_step_and_answers_are_those_of_decoding(
    backend: EmbeddedBackend, steps: Any
) -> None:
    allowed = ["good, I think", "good, but", "great", "great!"]
    with patch.object(Labels, "to_score_unasked", return_value=None):
        decoded = answers_of(backend, PROMPTS, labels=allowed)
    assert steps.call_count > 2
    steps.reset_mock()
    scored = answers_of(backend, PROMPTS, labels=allowed)
    assert steps.call_count == 1
    assert [one.text for one in scored] == [one.text for one in decoded]
    assert [one.tokens for one in scored] == [one.tokens for one in decoded]
    assert all(one.finish is Finish.STOP for one in scored)
    assert all(one.scores is None for one in decoded)
    for one in scored:
        assert one.scores is not None
        assert list(one.scores) == allowed
        assert fsum(map(exp, one.scores.values())) == pytest.approx(1)


def test_what_is_sampled_large_or_free_or_has_no_room_is_decoded(backend: EmbeddedBackend) -> None:
    long = "x" * (256 - len("\nAnswer:") - 2)
    sampled: dict[str, Any] = {"labels": LABELS, "temperature": 1.0, "seed": 1}
    for text, sampling in (
        ("x", sampled),
        ("x", {"labels": MANY}),
        ("x", {"max_tokens": 2}),
        (long, {"labels": ("a", "bcd")}),
    ):
        (answer,) = answers_of(backend, [text], **sampling)
        assert answer.scores is None
    assert answer.text in ("a", "bc")


def test_many_labels_are_scored_on_demand(backend: EmbeddedBackend, steps: Any) -> None:
    tokens = Labels(backend._renderer, backend.model.end, MANY).to_score("branch").tokens
    assert tokens > SCORED_UNASKED
    (scores,) = backend.score(["x"], labels=MANY)
    assert fsum(scores.probabilities.values()) == pytest.approx(1)
    assert steps.call_count == 1


def test_a_job_of_choices_has_their_scores_without_a_wait(engine: Engine) -> None:
    job = engine.submit(["x"], labels=["Yes", "No"])
    (answer,) = job.result(30)
    (scores,) = engine.score(["x"], labels=["Yes", "No"], normalization="branch")
    assert answer.scores == pytest.approx(scores.log_probabilities, abs=1e-5)
    assert answer.text in ("Yes", "No")


@pytest.fixture(scope="module")
def lowercase() -> Iterator[EmbeddedBackend]:
    tokenizer = byte_tokenizer()
    tokenizer.backend.normalizer = Lowercase()
    with closing(load_backend(MODEL, tokenizer=tokenizer, cache_tokens=512)) as backend:
        yield backend


def test_labels_with_the_same_tokens_are_refused_by_name(lowercase: EmbeddedBackend) -> None:
    with pytest.raises(ConfigError, match="'Yes' and 'yes' are the same tokens"):
        lowercase.score(["x"], labels=["Yes", "No", "yes"])
    assert lowercase.score(["x"], labels=["Yes", "No"])[0].error is None
    check_empty(lowercase)


class Spelling:
    """A tokenizer by the letter; an exclamation mark vanishes."""

    def encode(self, text: str) -> tuple[int, ...]:
        return tuple(map(ord, text.replace("!", "")))


def test_labels_without_tokens_or_with_an_end_token_are_not_scored_unasked() -> None:
    end = frozenset({ord(".")})
    for text, why in (("!", "has no tokens"), ("No.", "ends an answer")):
        found = Labels(Spelling(), end, ["Yes", text])  # type: ignore[arg-type]
        assert found.to_score_unasked() is None
        with pytest.raises(ConfigError, match=why):
            found.to_score("joint")


def test_a_label_that_another_continues_has_no_probability_without_an_end_token() -> None:
    found = Labels(Spelling(), frozenset(), ["a", "ab"])  # type: ignore[arg-type]
    assert found.to_score("branch").log_probabilities([[0.0]]) == (-inf, 0.0)
    assert found.to_score("joint").log_probabilities([[-3.0]]) == (-inf, 0.0)


def test_what_cannot_be_scored_is_refused_at_the_call(engine: Engine) -> None:
    settings: dict[str, Any] = {"prompts": ["x"], "labels": ["Yes", "No"]}
    for options, message in cases(__file__, "refused"):
        with pytest.raises(ConfigError, match=message):
            engine.score(**(settings | options))
        engine._worker.call(lambda: check_empty(engine._worker.engine), None)
    closed = Engine(MODEL, cost=COST, cache_tokens=512)
    closed.close()
    with pytest.raises(ConfigError, match="closed"):
        closed.score(["x"], labels=["Yes", "No"])


def test_an_error_in_a_step_is_raised(engine: Engine) -> None:
    broken = patch.object(NativeExecutor, "execute", side_effect=OverflowError("no memory"))
    with broken, pytest.raises(OverflowError, match="no memory"):
        engine.score(PROMPTS, labels=LABELS)
    engine._worker.call(lambda: check_empty(engine._worker.engine), None)
    assert engine.score(["x"], labels=LABELS)[0].error is None
