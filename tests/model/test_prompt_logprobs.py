"""How likely a prompt's own tokens are, beside transformers' log-softmax at each place."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import numpy as np
import pytest
import torch

from relquery.backends.local.embedded import EmbeddedBackend
from relquery.config import EngineConfig
from relquery.errors import ConfigError
from relquery.ledger.keys import has_one_answer
from relquery.model.networks.random import byte_tokenizer
from relquery.model.torch_runtime.load import prepare
from relquery.prompt import Adjustments, Finish, Reuse, Role, Sampling, Span
from tests.model.oracle.architectures import build, native, prompts_with_shared_prefixes


@pytest.fixture(scope="module")
def network() -> Any:
    return build("llama")


@pytest.mark.parametrize("runtime", ["native", "torch"])
@pytest.mark.parametrize(
    "config", [{}, {"max_num_seqs": 1}, {"max_num_batched_tokens": 5}, {"slice_tokens": 7}]
)
def test_they_are_those_of_transformers_whatever_is_cached_and_batched(
    network: Any, runtime: str, config: dict[str, Any]
) -> None:
    ids = prompts_with_shared_prefixes(5)
    prompts = [(Span(tuple(each.tolist()), Role.NONE),) for each in ids]
    model: Any = native(network, tokenizer=byte_tokenizer())
    if runtime == "torch":
        model = prepare(build("llama"), byte_tokenizer(), "tiny")
    plain, asked = Sampling(2), Sampling(2, prompt_logprobs=3)
    with closing(
        EmbeddedBackend(model, EngineConfig(**{"cache_tokens": 4096} | config))
    ) as backend:
        before = dict(backend.answer(prompts, plain))  # which leaves its states in the cache
        answers = dict(backend.answer(prompts, asked))
    for at, tokens in enumerate(ids):
        found, answer = answers[at].prompt_logprobs, answers[at]
        assert found is not None
        assert (answer.text, answer.logprobs) == (before[at].text, None)
        assert (answer.cached_tokens, before[at].prompt_logprobs) == (0, None)
        assert [each.token for each in found] == tokens.tolist()
        assert (found[0].logprob, found[0].top) == (0.0, ())
        with torch.inference_mode():
            logits = network(torch.from_numpy(tokens).long()[None]).logits[0].double()
        logs = torch.log_softmax(logits, -1)[:-1].numpy()
        own = logs[np.arange(len(logs)), tokens[1:]]
        np.testing.assert_allclose([each.logprob for each in found[1:]], own, atol=2e-4)
        assert [each.rank for each in found[1:]] == ((logs > own[:, None]).sum(1) + 1).tolist()
        best = [[token for token, _ in each.top] for each in found[1:]]
        assert best == np.argsort(-logs, 1, kind="stable")[:, :3].tolist()


def test_a_prompt_of_one_token_and_adjusted_logits(network: Any) -> None:
    """What changes the answer's logits changes nothing of the prompt's."""
    model = native(network, tokenizer=byte_tokenizer())
    prompts = [(Span(tuple(each), Role.NONE),) for each in ([7], [7, 8, 9])]
    biased = Adjustments(logit_bias=((20, 100.0),))
    with closing(EmbeddedBackend(model, EngineConfig(cache_tokens=1024))) as backend:
        found = dict(backend.answer(prompts, Sampling(1, prompt_logprobs=0, logprobs=0)))
        other = dict(backend.answer(prompts, Sampling(1, prompt_logprobs=0, adjustments=biased)))
    for at, length in enumerate((1, 3)):
        assert found[at].prompt_logprobs == other[at].prompt_logprobs
        assert len(found[at].prompt_logprobs or ()) == length
        assert other[at].tokens == (20,)
        assert len(found[at].logprobs or ()) == 1


def test_what_they_cannot_go_with_is_refused(network: Any) -> None:
    with pytest.raises(ConfigError, match="scored and prompt_logprobs are both given"):
        Sampling(labels=("a", "b"), scored=True, prompt_logprobs=0)
    with pytest.raises(ConfigError, match="prompt_logprobs is 21"):
        Sampling(prompt_logprobs=21)
    with pytest.raises(ConfigError, match="prompt_logprobs is given, which only the engine"):
        Sampling(prompt_logprobs=1).check_common()
    assert not has_one_answer(Sampling(prompt_logprobs=1))
    model = native(network, tokenizer=byte_tokenizer())
    parts = (Span((7, 8), Role.NONE, reuse=Reuse.INDEPENDENT), Span((9,), Role.NONE))
    with closing(EmbeddedBackend(model, EngineConfig(cache_tokens=1024))) as backend:
        ((_, answer),) = backend.answer([parts], Sampling(1, prompt_logprobs=0))
    assert answer.finish is Finish.ERROR
    assert "independent spans" in (answer.error or "")
