"""A simulated model: everything is real but the network, whose steps take a machine's time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from jsonschema import validate

import relquery as rq
from relquery.backends.load import load
from relquery.backends.local.embedded import EmbeddedBackend
from relquery.backends.local.open import load_backend
from relquery.engine.cost import Fit, LinearCost
from relquery.engine.machines import SERVED, write_machine
from relquery.errors import ConfigError, ModelError
from relquery.model.networks.random import byte_tokenizer
from relquery.prompt import Answer, Finish, Reuse, Sampling, Span
from tests.cases import cases

SCHEMA = """{"type": "object", "properties": {"name": {"type": "string"}, "ok": {"type": "boolean"},
"tags": {"type": "array", "items": {"enum": ["a", "b"]}, "minItems": 2}, "n": {"type": "integer"}},
"required": ["name", "ok", "tags", "n"], "additionalProperties": false}"""


@pytest.fixture(scope="module")
def backend() -> Iterator[EmbeddedBackend]:
    with closing(load_backend("simulated:step=0.001,length=12")) as backend:
        yield backend


def ask(backend: EmbeddedBackend, count: int, **sampling: object) -> list[Answer]:
    prompts = [(Span(f"Question {number}"),) for number in range(count)]
    answers = dict(backend.answer(prompts, Sampling(**sampling)))  # type: ignore[arg-type]
    return [answers[index] for index in range(count)]


def test_answers_have_the_length_that_is_given_and_can_be_read(backend: EmbeddedBackend) -> None:
    answers = ask(backend, 5)
    assert {(answer.output_tokens, answer.finish) for answer in answers} == {(12, Finish.STOP)}
    texts = [answer.text or "" for answer in answers]
    assert len(set(texts)) == 5
    assert all(text.isascii() and len(text.split()) >= 8 for text in texts)
    (short,) = ask(backend, 1, max_tokens=7)
    assert (short.output_tokens, short.finish) == (7, Finish.LENGTH)
    with closing(load_backend("simulated:step=0.0001")) as without:
        (answer,) = ask(without, 1, max_tokens=300)
    assert (answer.output_tokens, answer.finish) == (300, Finish.LENGTH)
    assert "It begins again until its time is over. This answer" in (answer.text or "")


def test_answers_do_not_depend_on_time_and_repeat() -> None:
    texts = []
    for name in ("simulated:step=0.001", "simulated:a100-opt13b,speed=50"):
        with closing(load_backend(name)) as backend:
            texts.append([answer.text for answer in ask(backend, 4, max_tokens=9)])
    assert texts[0] == texts[1]


def test_stop_strings_and_labels_end_answers(backend: EmbeddedBackend) -> None:
    (answer,) = ask(backend, 1, stop=(" ",))
    assert answer.finish is Finish.STOP
    assert answer.text is not None
    assert " " not in answer.text
    labels = ("a label that is longer than an answer may be", "No")
    assert {answer.text for answer in ask(backend, 6, labels=labels)} <= set(labels)
    (scores,) = backend.score(["Good?"], ["Yes", "No"])
    assert sorted(scores.probabilities.values()) == pytest.approx([1 / 3, 2 / 3])


def test_answers_under_a_schema_follow_it_and_end(backend: EmbeddedBackend) -> None:
    for answer in ask(backend, 20, schema=SCHEMA, max_tokens=200):
        assert answer.finish is Finish.STOP, answer
        validate(json.loads(answer.text or ""), json.loads(SCHEMA))


def test_prefixes_and_spans_come_from_the_cache(backend: EmbeddedBackend) -> None:
    passage = Span("A passage that two prompts share. " * 5, reuse=Reuse.INDEPENDENT)
    prompts = [(Span(f"Number {n}\n"), passage, Span("And?")) for n in range(2)]
    for prompt in prompts:
        (answer,) = (answer for _, answer in backend.answer([prompt], Sampling(max_tokens=2)))
    assert answer.cached_tokens > 20
    states = backend.inspect(prompts[0])
    assert states is not None
    assert states[1].cached > 20


def seconds(name: str, **options: object) -> float:
    """Of an answer of 20 tokens, the fastest of three."""
    taken = []
    with closing(load_backend(name, **options)) as backend:
        ask(backend, 1, max_tokens=1)
        for _ in range(3):
            begin = time.perf_counter()
            ask(backend, 1, max_tokens=20)
            taken.append(time.perf_counter() - begin)
    return min(taken)


@pytest.mark.long
@pytest.mark.parametrize("policy", ["sarathi", "shortest"])
def test_answers_take_as_long_as_the_machine_would_divided_by_the_speed(policy: str) -> None:
    cost = SERVED["a100-llama70b"].cost
    expected = cost.seconds(7, 0) + 19 * cost.seconds(0, 1)
    for speed in (4, 10):
        taken = seconds(f"simulated:a100-llama70b,speed={speed}", policy=policy)
        assert 1 <= taken * speed / expected < 1.3
    assert 20 * 0.004 <= seconds("simulated:step=0.008,speed=2", policy=policy) < 20 * 0.006


def test_the_limits_and_the_cost_are_the_machines_unless_they_are_given() -> None:
    machine = SERVED["a100-opt13b"]
    with closing(load_backend("simulated:a100-opt13b,speed=4", max_num_seqs=7)) as backend:
        assert backend.config.block_size == machine.limits.block_size
        assert backend.limits.cache_tokens == backend.limits.context == machine.limits.cache_tokens
        assert backend.config.max_num_seqs == 7
        assert backend.cost is not None
        assert backend.cost.decode_intercept == machine.cost.decode_intercept / 4
        assert backend.predict([100], Sampling(max_tokens=5)) == pytest.approx(
            (machine.cost.seconds(100, 0) + 4 * machine.cost.seconds(0, 1, 100)) / 4
        )
        backend.reserve()


def test_a_file_of_calibrate_is_a_machine(tmp_path: Path) -> None:
    file, cost = tmp_path / "laptop.json", LinearCost(1e-5, 1e-3, 1e-5, 1e-3)
    with closing(load_backend("simulated:step=1", cache_tokens=640)) as other:
        limits = other.config
    write_machine(file, "demo", Fit(cost, 1, 4), limits)
    with closing(load_backend(f"simulated:{file},speed=2", policy="srjf")) as backend:
        assert backend.limits.cache_tokens == 640
        assert backend.cost == LinearCost(5e-6, 5e-4, 5e-6, 5e-4)
        assert len(ask(backend, 3, max_tokens=1)) == 3


def test_the_context_can_be_set_and_longer_prompts_are_refused_alone() -> None:
    with closing(load_backend("simulated:step=0.001,context=20")) as backend:
        prompts = [(Span("word " * 40),), (Span("Hi"),)]
        long, short = dict(sorted(backend.answer(prompts, Sampling(max_tokens=3)))).values()
    assert long.finish is Finish.ERROR
    assert "context" in (long.error or "")
    assert short.output_tokens == 3


def test_a_tokenizer_can_be_given() -> None:
    with closing(load_backend("simulated:step=0.0001", tokenizer=byte_tokenizer())) as backend:
        (answer,) = ask(backend, 1, max_tokens=30)
        assert len(answer.text or "") == 30
        assert answer.prompt_tokens == len("Question 0\nAnswer:")
    with pytest.raises(ModelError, match="tokenizer is 3"):
        load_backend("simulated:step=1", tokenizer=3)


def test_a_wrong_name_says_what_would_be_right() -> None:
    for name, said in cases(__file__, "names"):
        with pytest.raises(ConfigError) as caught:
            load(f"simulated:{name}")
        assert said in str(caught.value)
    with pytest.raises(ConfigError, match="Did you mean 'simulated'"):
        load("Simulated:a100-opt13b")


def test_options_that_mean_nothing_are_refused_by_name() -> None:
    for options, said in cases(__file__, "options"):
        with pytest.raises(ConfigError) as caught:
            load("simulated:step=1", **options)
        assert said in str(caught.value)
    assert not Path("there").exists()


def test_it_cannot_be_calibrated(backend: EmbeddedBackend) -> None:
    with pytest.raises(ConfigError, match="is simulated, so there is nothing to measure"):
        backend.calibrate()


def test_an_engine_serves_jobs_in_the_order_of_its_policy() -> None:
    with rq.Engine("simulated:step=0.005", policy="shortest", max_num_seqs=2) as engine:
        long = engine.submit(["A long job"] * 8, max_tokens=20)
        assert engine.submit(["A short one"], max_tokens=2).result()[0].output_tokens == 2
        assert not long.done
        assert (long.estimate() or 0) > 0
        assert long.cancel()


def test_idle_time_before_a_prompt_does_not_shorten_its_steps() -> None:
    with rq.Engine("simulated:step=0.03", policy="fcfs") as engine:
        engine.submit(["x"], max_tokens=1).result()
        for pause in (0.01, 0.05):
            time.sleep(pause)
            job = engine.submit(["x"], max_tokens=1)
            job.result()
            assert job.latency is not None
            assert job.latency.total >= 0.03


def test_a_job_waits_until_its_first_prompt_is_begun() -> None:
    with rq.Engine("simulated:step=0.02", max_num_seqs=1) as engine:
        job = engine.submit(["one", "two", "three", "four", "five", "six"], max_tokens=1)
        job.result()
        assert job.latency is not None
        assert job.latency.waiting < job.latency.core


def test_sql_runs_on_it() -> None:
    with rq.connect("simulated:step=0.001,length=3") as con:
        con.register("movies", rq.demo_table("movies"))
        query = "SELECT LLM('Summarise.', reviewcontent) AS s FROM movies LIMIT 4"
        assert [bool(text) for (text,) in con.sql(query)] == [True] * 4


def test_ctrl_c_ends_a_step_and_the_next_question_is_answered() -> None:
    interrupt = threading.Timer(
        0.1, lambda: signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
    )
    with closing(load_backend("simulated:step=30,speed=1")) as backend:
        answers = backend.answer([(Span("x"),)], Sampling(max_tokens=1))
        begin = time.perf_counter()
        interrupt.start()
        with pytest.raises(KeyboardInterrupt):
            next(answers)
        assert time.perf_counter() - begin < 10
        assert backend.engine.pool.held == 0
        assert not backend.engine.running


@pytest.mark.long
def test_torch_is_not_imported() -> None:
    code = (
        "import sys, relquery as rq\n"
        "with rq.Engine('simulated:a100-opt13b,speed=1000') as engine:\n"
        "    print(len(engine.submit(['x'] * 3, max_tokens=2).result()), 'torch' in sys.modules)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ, check=False
    )
    assert run.stdout.split() == ["3", "False"], run.stderr
