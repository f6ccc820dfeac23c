"""The embedded engine answers prompts: each once, in any company, with errors that stay its own."""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from tokenizers.normalizers import Lowercase

from relquery.backends.local.embedded import EmbeddedBackend
from relquery.backends.local.open import load_backend
from relquery.config import EngineConfig
from relquery.engine.cost import Fit, LinearCost
from relquery.engine.machines import SERVED, write_machine
from relquery.errors import ConfigError, MissingExtraError, ModelError, RequestError
from relquery.model.networks.random import byte_tokenizer
from relquery.prompt import Answer, Finish, Prompt, Reuse, Role, Sampling, Span
from tests.backends.local.collected import Collected

MODEL = "random:layers=2,hidden=64,heads=2,context=256,seed=3"


@pytest.fixture(scope="module")
def backend() -> Iterator[EmbeddedBackend]:
    with closing(load_backend(MODEL, cache_tokens=2048)) as backend:
        yield backend


def prompt(text: str) -> Prompt:
    return Span("Be brief.", Role.SYSTEM), Span("Question\n"), Span(text)


def ask(backend: EmbeddedBackend, texts: list[str], **sampling: object) -> list[Answer]:
    settings = Sampling(**{"max_tokens": 8, **sampling})  # type: ignore[arg-type]
    answers = dict(backend.answer([prompt(text) for text in texts], settings))
    assert sorted(answers) == list(range(len(texts)))
    return [answers[index] for index in range(len(texts))]


def test_prompts_are_answered_once_with_shared_prefixes_cached(backend: EmbeddedBackend) -> None:
    answers = ask(backend, ["a" * 40 + str(n) for n in range(20)])
    assert sum(answer.cached_tokens for answer in answers[1:]) >= 19 * 48
    assert all(
        answer.prompt_tokens == len("Be brief.\n\nQuestion\n\nAnswer:") + 41 + (n > 9)
        for n, answer in enumerate(answers)
    )


def test_memory_taken_beforehand_is_that_of_the_whole_cache_and_changes_no_answer() -> None:
    with closing(load_backend("demo", cache_tokens=65_536)) as one:
        (before,) = ask(one, ["x" * 40], max_tokens=3)
        used = _resident()
        one.reserve()
        taken = _resident() - used
        (after,) = ask(one, ["x" * 40], max_tokens=3)
    layers, kv_width, keys_and_values = 4, 192, 2
    # The first prompt took some huge pages.
    assert taken > 0.8 * 65_536 * layers * kv_width * keys_and_values * 4
    assert (after.text, after.prompt_tokens) == (before.text, before.prompt_tokens)
    assert after.cached_tokens > 0


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def test_calibration_fits_the_machine_and_leaves_nothing_wrong_in_the_cache() -> None:
    # Large enough that a longer prompt takes longer, whatever else the machine does.
    one = load_backend("random:layers=4,hidden=128,heads=2,context=1024", cache_tokens=1024)
    before = ask(one, ["x" * 60], max_tokens=3)
    seen: list[tuple[str, int, int]] = []
    fit = one.calibrate(progress=lambda *step: seen.append(step))
    assert fit.cost.seconds(1000, 0) > fit.cost.seconds(10, 0) > 0
    assert seen[-1][1] == seen[-1][2]
    after = ask(one, ["x" * 60], max_tokens=3)
    assert after[0].text == before[0].text
    assert after[0].cached_tokens == 0
    waiting = one.answer([prompt("x")], Sampling(max_tokens=1))
    with pytest.raises(ConfigError, match="Requests are still running"):
        one.calibrate()
    assert len(list(waiting)) == 1
    one.close()


def test_an_answer_that_is_cut_says_by_max_tokens_or_by_room(backend: EmbeddedBackend) -> None:
    full = 256 - len("Be brief.\n\nQuestion\n\nAnswer:")
    (short,) = ask(backend, ["x"], max_tokens=3)
    (full_up,) = ask(backend, ["x" * (full - 5)], max_tokens=8)
    assert (short.finish, short.output_tokens) == (Finish.LENGTH, 3)
    assert "max_tokens" in str(short.error)
    assert (full_up.finish, full_up.output_tokens) == (Finish.LENGTH, 5)
    assert "no more room" in str(full_up.error)
    assert "max_tokens" not in str(full_up.error)


def test_a_prompt_that_cannot_be_rendered_fails_alone(backend: EmbeddedBackend) -> None:
    prompts = [prompt(f"row {n}") for n in range(7)]
    wrong = {2: (Span("x", position=-1),), 3: prompt("\ud800"), 6: (Span((3, 999)), Span("x"))}
    asked = [wrong.get(n, each) for n, each in enumerate(prompts)]
    sampling = Sampling(max_tokens=4)
    answers, alone = (dict(backend.answer(each, sampling)) for each in (asked, prompts))
    assert {n for n, answer in answers.items() if answer.finish is Finish.ERROR} == set(wrong)
    assert all(answers[n].text == alone[n].text for n in alone if n not in wrong)
    with pytest.raises(RequestError, match="999"):
        backend.inspect(wrong[6])


def test_spans_have_the_positions_that_they_are_given(backend: EmbeddedBackend) -> None:
    """As if what is between them were not seen: a span that is moved along changes nothing else."""
    passage = Span("a passage", reuse=Reuse.INDEPENDENT, position=20)
    asked = (Span("Read: "), passage, Span("And?", position=60))
    late = (Span("x"), Span("y", position=300))
    first, again, failed = (
        answer
        for prompt in (asked, asked, late)
        for _, answer in backend.answer([prompt], Sampling(max_tokens=3))
    )
    assert first.text == again.text
    assert again.cached_tokens >= len("a passage") // 4 * 4
    assert failed.finish is Finish.ERROR
    assert re.search("25[56]", str(failed.error))


def test_a_prompt_beyond_the_context_or_the_cache_fails_alone(backend: EmbeddedBackend) -> None:
    good, bad, also_good = ask(backend, ["x", "y" * 400, "z"], labels=("Yes", "No"))
    assert (bad.text, bad.finish) == (None, Finish.ERROR)
    assert "255" in str(bad.error)
    assert bad.prompt_tokens == 0
    assert {good.text, also_good.text} <= {"Yes", "No"}
    with closing(load_backend(MODEL, cache_tokens=64)) as small:
        (answer,) = ask(small, ["y" * 100])
    assert "KV cache" in str(answer.error)


def test_allowed_answers_are_the_only_ones_and_may_begin_alike(backend: EmbeddedBackend) -> None:
    allowed = ("Yes", "No", "Nope", "POSITIVE", "é")
    answers = ask(backend, [f"q{n}" for n in range(30)], labels=allowed, max_tokens=1)
    assert all(answer.text in allowed and answer.error is None for answer in answers)
    alike = ("No", "Nope")
    answers = ask(backend, [f"q{n}" for n in range(40)], labels=alike, temperature=2.0, seed=1)
    assert {answer.text for answer in answers} == set(alike)
    assert all(answer.error is None for answer in answers)


def test_a_stop_string_does_not_cut_a_choice(backend: EmbeddedBackend) -> None:
    (answer,) = ask(backend, ["x"], labels=("not\nat all",), stop=("\n",))
    assert (answer.text, answer.finish) == ("not\nat all", Finish.STOP)


def test_a_choice_is_given_back_as_it_was_written_whatever_the_tokenizer_makes_of_it() -> None:
    tokenizer = byte_tokenizer()
    tokenizer.backend.normalizer = Lowercase()
    one = load_backend(MODEL, tokenizer=tokenizer, cache_tokens=512)
    allowed = ("Yes", "No")
    assert {answer.text for answer in ask(one, ["x", "y"], labels=allowed)} <= set(allowed)
    one.close()


def test_an_answer_ends_before_a_stop_string(backend: EmbeddedBackend) -> None:
    (whole,) = ask(backend, ["tell me"], max_tokens=30, temperature=1.0, seed=5)
    assert whole.text is not None
    stop = whole.text[4:6]
    (cut,) = ask(backend, ["tell me"], max_tokens=30, temperature=1.0, seed=5, stop=(stop,))
    assert cut.text == whole.text[: whole.text.index(stop)]
    assert cut.finish is Finish.STOP


def test_sampled_answers_repeat_with_a_seed_whatever_the_order(backend: EmbeddedBackend) -> None:
    texts = [f"row {n}" for n in range(10)]
    once = ask(backend, texts, temperature=1.0, seed=11)
    again = ask(backend, texts[::-1], temperature=1.0, seed=11)
    assert [answer.text for answer in once] == [answer.text for answer in again[::-1]]
    assert len({answer.text for answer in once}) == len(texts)
    other = ask(backend, texts, temperature=1.0, seed=12)
    assert [answer.text for answer in once] != [answer.text for answer in other]


def test_closing_the_iterator_cancels_what_is_open(backend: EmbeddedBackend) -> None:
    stream = backend.answer([prompt(f"c{n}") for n in range(9)], Sampling(max_tokens=50))
    stream.close()  # type: ignore[attr-defined]
    stream = backend.answer([prompt("x"), prompt("y" * 400)], Sampling(max_tokens=50))
    next(stream)
    stream.close()  # type: ignore[attr-defined]
    assert not backend.engine.waiting
    assert not backend.engine.running
    backend.engine.pool.check()
    assert backend.engine.pool.held == 0


def test_closing_the_backend_cancels_what_is_open() -> None:
    one = load_backend(MODEL, cache_tokens=512)
    stream = one.answer([prompt("a"), prompt("b")], Sampling(max_tokens=50))
    one.close()
    one.close()
    assert [answer.finish for _, answer in stream] == [Finish.CANCELLED] * 2


def test_what_is_submitted_is_served_by_steps_that_others_take(backend: EmbeddedBackend) -> None:
    asked = [prompt("a"), prompt("y" * 400)]
    first = Collected(backend, asked, Sampling(max_tokens=3), 7.0, tenant="ann")
    second = Collected(backend, [prompt("b")], Sampling(max_tokens=50))
    assert first.batch is not None
    assert first.batch.relquery is not None
    assert (first.batch.relquery.tenant, first.batch.relquery.arrival) == ("ann", 7.0)
    assert [index for index, _ in first.answers] == [1]
    for _ in range(3):
        backend.batches.step()
    assert not first.is_open
    assert [index for index, _ in first.answers] == [1, 0]
    assert (backend.cancel(second), backend.cancel(first)) == (True, False)
    ((index, answer),) = second.answers
    assert (index, answer.finish, answer.text) == (0, Finish.CANCELLED, None)
    assert answer.output_tokens == 3
    assert not backend.engine.relqueries
    assert backend.engine.pool.held == 0


def test_a_cache_too_small_to_calibrate_with_says_how_large_it_must_be() -> None:
    small = load_backend(MODEL, cache_tokens=64)
    with pytest.raises(ConfigError, match=r"holds 64 tokens.*at least (\d+)") as caught:
        small.calibrate()
    assert len(list(small.answer([prompt("x")], Sampling(max_tokens=1)))) == 1
    small.close()
    least = int(re.findall(r"\d+", str(caught.value))[1])
    enough = load_backend(MODEL, cache_tokens=least)
    assert enough.calibrate().cost.seconds(10, 0) > 0
    enough.close()


def test_costs_are_measured_where_the_policy_asks_for_them_and_none_are_given() -> None:
    costs = {
        (policy, given): load_backend(MODEL, cache_tokens=512, policy=policy, cost=given).cost
        for policy in ("sarathi", "relserve")
        for given in (None, "a100-opt13b", LinearCost(1.0))
    }
    measured = [costs.pop(("relserve", None))]
    known = SERVED["a100-opt13b"].cost
    assert list(costs.values()) == [None, known, LinearCost(1.0), known, LinearCost(1.0)]
    small = [load_backend(MODEL, cache_tokens=size, policy="shortest") for size in (16, 40)]
    for cost in (*measured, *(each.cost for each in small)):
        assert cost is not None
        assert cost.seconds(100, 0) > 0


def test_costs_that_another_model_was_measured_with_are_told(tmp_path: Path) -> None:
    path, fit = tmp_path / "cost.json", Fit(LinearCost(1e-3, 0.1), 40, 0.99, 0.97)
    write_machine(path, "demo", fit, EngineConfig())
    with pytest.warns(UserWarning, match="measured with the model 'demo', but this is 'random:"):
        assert load_backend(MODEL, cost=str(path)).cost == fit.cost
    write_machine(path, MODEL, fit, EngineConfig())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_backend(MODEL, cost=str(path))


@pytest.mark.parametrize(
    ("model", "options", "error", "said"),
    [
        (MODEL, {"max_num_seq": 3}, ConfigError, "Did you mean 'max_num_seqs'"),
        ("demmo", {}, ModelError, "Did you mean 'demo'"),
        ("random:layer=2", {}, ModelError, "Did you mean 'layers'"),
        (MODEL, {"device": "cuda:1"}, ModelError, "device is 'cuda:1', and this machine has no"),
        (MODEL, {"device": "gpu"}, ModelError, "device is 'gpu'; give 'cpu'"),
        (".", {}, ModelError, "not a folder of a model that generates text"),
        ("no model", {"cost": "a101-opt13b"}, ConfigError, "model 'a101-opt13b' is not known"),
        ("no model", {"cost": 1.5}, ConfigError, "Give a LinearCost"),
    ],
)
def test_what_cannot_be_loaded_says_what_can(
    model: str,
    options: dict[str, Any],
    error: type[Exception],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(error, match=said):
        load_backend(model, **options)


def test_without_torch_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "relquery.model.torch_runtime.load", None)
    with pytest.raises(MissingExtraError, match=r"relquery\[torch\]"):
        load_backend(MODEL, device="cuda")


def test_seconds_are_predicted_from_what_the_cache_lacks() -> None:
    cost = LinearCost(1e-3, 0.01, 2e-3, 0.02)
    costly = load_backend(MODEL, cache_tokens=1024, max_num_batched_tokens=16, cost=cost)
    question = prompt("word " * 20)
    tokens = sum(piece.tokens for piece in costly.inspect(question) or ())
    steps = -(-tokens // 16)
    expected = tokens * 1e-3 + steps * 0.01 + 4 * (2e-3 + 0.02)
    assert costly.predict([tokens], Sampling(max_tokens=5)) == pytest.approx(expected)
    list(costly.answer([question], Sampling(max_tokens=1)))
    cached = sum(piece.cached for piece in costly.inspect(question) or ())
    assert cached > tokens // 2
    assert costly.predict([tokens], Sampling(max_tokens=1), cached) == pytest.approx(
        (tokens - cached) * 1e-3 + -(-(tokens - cached) // 16) * 0.01
    )
    costly.close()
    with closing(load_backend(MODEL, policy="fcfs")) as unmeasured:
        assert unmeasured.predict([3], Sampling()) is None


def test_a_prompt_far_beyond_the_context_is_refused_before_it_is_cut_into_tokens() -> None:
    backend = load_backend("random:layers=1,hidden=32,context=256")
    with patch.object(backend._renderer, "_tokenizer") as tokenizer:
        (answer,) = [answer for _, answer in backend.answer([(Span("x" * 9_999),)], Sampling())]
        assert not tokenizer.called
    assert answer.error is not None
    assert "far more than the model's context" in answer.error
    backend.close()
