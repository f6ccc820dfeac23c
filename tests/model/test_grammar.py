"""Answers under a schema are those of greedy decoding restricted to the grammar, token for token.

The oracle runs the stock network over the whole text for each token, and asks a matcher of its own
which tokens may come next. It knows nothing of forced tokens.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from functools import cache
from random import Random
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from llguidance import LLMatcher, LLTokenizer
from tokenizers import Tokenizer as Backend
from tokenizers import models

from relquery.arrays import TokenIds
from relquery.backends.schemas import closed
from relquery.demo.files import model_path
from relquery.engine.requests.request import Draw, Request, Rules
from relquery.errors import ConfigError, ModelError
from relquery.model.grammar import Grammar, Grammars, ids_of, masks
from relquery.model.native_model import NativeModel
from relquery.model.networks.random import byte_tokenizer
from relquery.model.text.tokenizer import Tokenizer, read_tokenizer
from relquery.prompt import Finish
from tests.cases import cases
from tests.model.oracle.architectures import (
    LLAMA_LIKE,
    engine_of,
    finished,
    larger,
    made,
    native,
)
from tests.model.test_sampling import check as check_logprobs
from tests.model.test_sampling import drawn_from
from tests.schemas import STRUCT, as_text, bounded

LENGTH, COUNT = 200, 4
SETTINGS: Any = {"whitespace_flexible": False, "item_separator": ",", "key_separator": ":"}


class Side(NamedTuple):
    """A network with our attention, the stock one, and how texts are tokens."""

    model: NativeModel
    stock: Any
    tokenizer: Tokenizer
    end: int

    def grammars(self) -> Grammars:
        return Grammars(self.tokenizer, len(self.tokenizer), {self.end})

    def grammar(self, schema: str) -> Grammar:
        return self.grammars().of(json.dumps(closed(schema)))

    def prompts(self, count: int) -> list[TokenIds]:
        texts = [f"Describe row {i // 2} of the table, {i}." for i in range(count)]
        ids = self.tokenizer.encode(texts)
        return [np.array(each, np.int32) for each in ids]


def tokenizer_of(name: str) -> Tokenizer:
    return byte_tokenizer() if name == "bytes" else read_tokenizer(model_path())


@cache
def side(name: str) -> Side:
    tokenizer = tokenizer_of(name)
    end = tokenizer.id_of("eos_token")
    assert end is not None
    sizes = {"vocab_size": len(tokenizer), "eos_token_id": end}
    make = made("Llama", LLAMA_LIKE, sizes, bos_token_id=None, pad_token_id=None)
    network = larger(make, by=6, seed=3)
    stock = deepcopy(network)
    return Side(native(network, name, tokenizer=tokenizer), stock, tokenizer, end)


class Reference:
    """A matcher of the library alone."""

    def __init__(self, used: Side, schema: str) -> None:
        library = LLTokenizer(used.tokenizer.backend.to_str(), eos_token=used.end)
        grammar = LLMatcher.grammar_from_json_schema(json.dumps(closed(schema)), overrides=SETTINGS)
        self.tokenizer, self.matcher = library, LLMatcher(library, grammar)
        assert not self.matcher.is_error()

    def allowed(self) -> list[int]:
        mask = np.frombuffer(self.matcher.compute_bitmask(), np.uint8)
        return np.flatnonzero(np.unpackbits(mask, bitorder="little")).tolist()

    def accepted(self) -> list[int]:
        """All tokens that the library would take, tried one by one."""
        count = self.tokenizer.vocab_size
        return [token for token in range(count) if self.matcher.validate_tokens([token]) == 1]


@torch.inference_mode()
def restricted(used: Side, schema: str, prompt: TokenIds, most: int = LENGTH) -> list[int]:
    """Greedy decoding of the stock network with a dense mask, one token at a time."""
    reference, output = Reference(used, schema), list[int]()
    while len(output) < most and not reference.matcher.is_stopped():
        ids = torch.tensor([[*prompt.tolist(), *output]])
        logits = used.stock(input_ids=ids, use_cache=False).logits[0, -1]
        hidden = torch.full_like(logits, -torch.inf)
        allowed = reference.allowed()
        hidden[allowed] = logits[allowed]
        token = int(hidden.argmax())
        if token == used.end:
            break
        assert reference.matcher.consume_token(token)
        output.append(token)
    return output


def requests_of(
    used: Side, schema: str, prompts: Sequence[TokenIds], most: int = LENGTH, **draw: Any
) -> list[Request]:
    grammar, rules = used.grammar(schema), Rules(frozenset({used.end}))
    return [
        Request(i, prompt, most, Draw(**draw, matcher=grammar.matcher()), rules=rules)
        for i, prompt in enumerate(prompts)
    ]


def outputs(used: Side, requests: Sequence[Request], **limits: Any) -> list[list[int]]:
    list(finished(engine_of(used.model, **limits), requests))
    return [request.output for request in requests]


SCHEMAS = {
    "struct": STRUCT,
    "integer": '{"type": "integer", "minimum": 0, "maximum": 99999}',
    "strings": '{"type": "array", "items": {"type": "string", "maxLength": 9}, "maxItems": 4}',
    "choice": '{"enum": ["good", "goods", "very good", "bad"]}',
    "constant": '{"const": {"a": [1, 2, "x"]}}',
}
LIMITS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "no prefix caching": {"prefix_caching": False, "segment_sharing": False},
    "two at a time": {"max_num_seqs": 2},
    "chunks of 7 tokens": {"max_num_batched_tokens": 7, "max_num_seqs": 4},
    "preemption": {"block_size": 4, "cache_tokens": 320},
}


@cache
def expected(name: str, schema: str) -> list[list[int]]:
    used = side(name)
    return [restricted(used, SCHEMAS[schema], prompt) for prompt in used.prompts(COUNT)]


@pytest.mark.parametrize("name", ["bytes", "demo"])
def test_answers_are_those_of_greedy_decoding_with_a_dense_mask(name: str) -> None:
    used = side(name)
    for schema, text in SCHEMAS.items():
        requests = requests_of(used, text, used.prompts(COUNT))
        assert outputs(used, requests) == expected(name, schema)
        assert {request.finish for request in requests} == {Finish.STOP}


@pytest.mark.parametrize("limits", LIMITS.values(), ids=LIMITS)
def test_answers_are_the_same_in_every_setting(limits: dict[str, Any]) -> None:
    used = side("demo")
    requests = requests_of(used, STRUCT, used.prompts(COUNT))
    assert outputs(used, requests, **limits) == expected("demo", "struct")


@pytest.mark.parametrize(
    ("name", "schema", "most"),
    [
        ("demo", "struct", LENGTH),
        ("bytes", "choice", 9),
        *(
            pytest.param(name, schema, most, marks=pytest.mark.long)
            for name in ("bytes", "demo")
            for schema in SCHEMAS
            for most in (1, 9, LENGTH)
        ),
    ],
)
def test_asking_for_log_probabilities_tells_those_of_forced_tokens_too(
    name: str, schema: str, most: int
) -> None:
    used = side(name)
    plain = requests_of(used, SCHEMAS[schema], used.prompts(COUNT), most)
    asking = requests_of(used, SCHEMAS[schema], used.prompts(COUNT), most, logprobs=2)
    for request in asking:
        request.draw = replace(
            request.draw, matcher=used.grammar(SCHEMAS[schema]).matcher(stepwise=True)
        )
    mixed = outputs(used, [*plain, *asking])
    assert mixed[:COUNT] == mixed[COUNT:] == [each[:most] for each in expected(name, schema)]
    assert [each.finish for each in asking] == [each.finish for each in plain]
    for request in asking:
        check_logprobs(request, used.stock)


@pytest.mark.parametrize("limits", [{}, pytest.param(LIMITS["preemption"], marks=pytest.mark.long)])
def test_sampled_answers_are_the_same_where_forced_tokens_are_drawn(limits: dict[str, Any]) -> None:
    used, found = side("demo"), []
    for stepwise in False, True:
        made = requests_of(used, STRUCT, used.prompts(COUNT))
        for request in made:
            matcher = used.grammar(STRUCT).matcher(stepwise)
            logprobs = 1 if stepwise else None
            request.draw = Draw(1.4, 0.95, 300, 7, matcher=matcher, logprobs=logprobs)
        found.append(outputs(used, made, **limits))
    assert found[0] == found[1]
    for request in made:
        check_logprobs(request, used.stock)


def test_the_networks_answers_differ_from_prompt_to_prompt() -> None:
    assert len({tuple(each) for each in expected("demo", "struct")}) > 2


def test_max_tokens_cut_an_answer_where_they_cut_the_dense_one() -> None:
    used = side("demo")
    for most in (1, 2, 9, 30):
        requests = requests_of(used, STRUCT, used.prompts(3), most)
        assert outputs(used, requests) == [each[:most] for each in expected("demo", "struct")[:3]]
        assert {request.finish for request in requests} == {Finish.LENGTH}


def test_free_requests_in_the_same_batch_answer_as_they_do_alone() -> None:
    used = side("demo")
    prompts = used.prompts(COUNT)

    def free() -> list[Request]:
        return [Request(10 + i, prompt, 40) for i, prompt in enumerate(prompts)]

    alone = outputs(used, free())
    bound = requests_of(used, STRUCT, prompts)
    both = outputs(used, [each for pair in zip(free(), bound, strict=True) for each in pair])
    assert both[::2] == alone
    assert both[1::2] == expected("demo", "struct")


def test_a_sampled_answer_is_valid_and_depends_on_its_seed_alone() -> None:
    used = side("demo")
    prompts = used.prompts(5)

    def sampled(seed: int, **limits: Any) -> list[list[int]]:
        draw: Any = {"temperature": 1.5, "top_p": 0.9, "top_k": 300, "seed": seed}
        return outputs(used, requests_of(used, STRUCT, prompts, **draw), **limits)

    first, grammar = sampled(1), used.grammar(STRUCT)
    assert sampled(1, max_num_seqs=1) == sampled(1, block_size=4, cache_tokens=400) == first
    assert sampled(2) != first
    for output in first:
        assert list(json.loads(grammar.text(output))) == ["name", "age", "ok", "mood", "tags"]


def test_of_many_sampled_tokens_each_allowed_one_is_drawn_and_no_other() -> None:
    used = side("bytes")
    grammar, (quote,) = used.grammar('{"enum": ["a", "b", "c"]}'), used.tokenizer.encode(['"'])[0]
    matchers = [grammar.matcher() for _ in range(300)]
    assert {tuple(matcher.begin(9)) for matcher in matchers} == {(quote,)}
    draws = [Draw(1.0, seed=seed, matcher=matcher) for seed, matcher in enumerate(matchers)]
    drawn = drawn_from(np.zeros((300, len(used.tokenizer))), draws)
    assert set(drawn) == set(used.tokenizer.encode(["abc"])[0])


def seeds(count: int) -> list[Any]:
    return [0, 1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, count))]


@pytest.mark.parametrize("seed", seeds(12))
def test_a_token_is_forced_where_it_is_the_only_one_of_the_mask(seed: int) -> None:
    rng = Random(seed)
    used, schema = side(rng.choice(["bytes", "demo"])), as_text(bounded(rng))
    ours, reference, output = used.grammar(schema).matcher(), Reference(used, schema), list[int]()
    held_back = ours.begin(10_000)
    while len(reference.allowed()) == 1 and not reference.matcher.is_stopped():
        (token,) = reference.allowed()
        if len(output) < len(held_back):
            assert token == held_back[len(output)]
        assert reference.matcher.consume_token(token)
        output.append(token)
    is_constant = reference.matcher.is_stopped()
    assert output[: len(output) - is_constant] == held_back
    while not is_constant and not reference.matcher.is_stopped():
        token = rng.choice([each for each in reference.allowed() if each != used.end] or [used.end])
        if token == used.end:
            break
        assert ours.allowed().tolist() == reference.allowed()
        taken = ours.take(token)
        assert reference.matcher.consume_token(token)
        for forced in taken[1:]:
            assert reference.allowed() == [forced]
            assert reference.matcher.consume_token(forced)
        assert reference.matcher.is_stopped() or len(reference.allowed()) > 1
        assert ours.is_over == reference.matcher.is_stopped()


@pytest.mark.parametrize("seed", seeds(6))
def test_masks_hold_what_the_library_takes_token_by_token(seed: int) -> None:
    """With a byte for a token the mask is exactly that. With longer tokens a text that is the only
    one possible is in the mask with the first token of its tokenization alone."""
    rng = Random(seed)
    for name in "bytes", "demo":
        used, schema = side(name), as_text(bounded(rng))
        ours, reference = used.grammar(schema).matcher(), Reference(used, schema)
        for token in ours.begin(10_000):
            reference.matcher.consume_token(token)
        for _ in range(6):
            if reference.matcher.is_stopped():
                break
            allowed, accepted = set(ours.allowed().tolist()), set(reference.accepted())
            assert allowed <= accepted | {used.end}
            if name == "bytes" or len(allowed) > 1:
                assert allowed - {used.end} == accepted - {used.end}
            token = rng.choice(sorted(allowed - {used.end}) or [used.end])
            if token == used.end:
                break
            for each in ours.take(token):
                reference.matcher.consume_token(each)


def test_masks_of_many_answers_are_those_of_each() -> None:
    used = side("demo")
    matchers = [used.grammar(schema).matcher() for schema in SCHEMAS.values()]
    for mask, matcher in zip(masks(matchers), matchers, strict=True):
        assert ids_of(mask).tolist() == matcher.allowed().tolist()


def test_the_likeliest_allowed_token_is_found_in_every_kind_of_row() -> None:
    used = side("demo")
    generator = torch.Generator().manual_seed(0)
    for _ in range(4):
        matchers = []
        for schema in SCHEMAS.values():
            matchers.append(used.grammar(schema).matcher())
            matchers[-1].begin(3)
        logits = torch.randn(len(matchers), len(used.tokenizer), generator=generator).bfloat16()
        draws = [Draw(matcher=matcher) for matcher in matchers]
        expected = [
            min(matcher.allowed().tolist(), key=lambda token: (-float(row[token]), token))
            for row, matcher in zip(logits, matchers, strict=True)
        ]
        assert drawn_from(logits.float(), draws) == expected


def test_a_model_without_end_tokens_ends_where_nothing_can_follow() -> None:
    tokenizer = byte_tokenizer()
    grammars = Grammars(tokenizer, len(tokenizer) + 9, ())
    number = grammars.of('{"type": "integer", "minimum": 1, "maximum": 20}').matcher()
    (two,) = tokenizer.encode(["2"])[0]
    assert number.take(two) == [two]
    (zero,) = tokenizer.encode(["0"])[0]
    assert number.allowed().tolist() == [zero]
    assert number.take(zero) == [zero]
    assert number.is_over


def test_text_is_what_the_tokens_say_and_half_a_character_is_shown_as_such() -> None:
    used = side("bytes")
    grammar, tokens = used.grammar('{"type": "string"}'), used.tokenizer.encode(['"é"'])[0]
    assert grammar.text(tokens) == '"é"'
    assert grammar.text(tokens[:2]) == '"�'


@pytest.mark.parametrize("name", ["bytes", "demo"])
def test_the_text_of_a_special_token_is_spelt_in_others(name: str) -> None:
    used = side(name)
    for word in [*used.tokenizer.special_ids, "<b>"]:
        schema = json.dumps({"type": "object", "properties": {word: {"const": f"a{word}"}}})
        (output,) = outputs(used, requests_of(used, schema, used.prompts(1)))
        assert json.loads(used.grammar(schema).text(output)) == {word: f"a{word}"}


def test_a_schema_is_compiled_once() -> None:
    grammars = side("bytes").grammars()
    assert grammars.of(STRUCT) is grammars.of(STRUCT)
    assert grammars.of(STRUCT) is not grammars.of('{"type": "integer"}')


def test_a_schema_that_cannot_be_followed_is_refused_with_what_it_is() -> None:
    for schema, why in cases(__file__, "refused"):
        with pytest.raises(ConfigError, match=why):
            side("bytes").grammar(schema)


def test_a_tokenizer_that_cannot_be_read_is_refused() -> None:
    words = Backend(models.WordLevel({"a": 0, "[UNK]": 1}, unk_token="[UNK]"))
    with pytest.raises(ModelError, match="tokenizer cannot be used for answers under a schema"):
        Grammars(Tokenizer(words, {}), 2, {0}).of(STRUCT)


def test_a_model_that_ends_with_ordinary_text_is_refused() -> None:
    tokenizer = byte_tokenizer()
    with pytest.raises(ModelError, match="token 40, which is ordinary text"):
        Grammars(tokenizer, len(tokenizer), {40}).of(STRUCT)
