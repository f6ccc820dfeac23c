"""`vllm:NAME`: texts, labels and scores beside the same model in transformers, in float32."""

from __future__ import annotations

import random
import sys
from typing import Any

from relquery.demo.files import model_path
from relquery.prompt import Role, Sampling, Span
from tests.vllm.real.started import SMALL, network, prepare

LABELS = ("Yes", "No", "Not sure", "Nothing", "Yesterday")
WORDS = ("film", "long", "story", "two", "old", "friends", "good", "beer", "quiet", "towns")
COUNT, LENGTH, TOLERANCE = 24, 12, 1e-4


def greedy(model: Any, prompt: list[int], end: int | None) -> list[int]:
    """The answer by whole passes over prompt and answer, one for each token."""
    import torch

    tokens = [*prompt]
    while len(tokens) < len(prompt) + LENGTH:
        with torch.no_grad():
            token = int(model(torch.tensor([tokens])).logits[0, -1].argmax())
        if token == end:
            break
        tokens.append(token)
    return tokens[len(prompt) :]


def scores(model: Any, prompt: list[int], labels: list[list[int]]) -> list[float]:
    """Log-probability of each label, at each place among the tokens that some label has there."""
    import torch

    found = []
    for label in labels:
        with torch.no_grad():
            logs = model(torch.tensor([[*prompt, *label]])).logits[0].log_softmax(-1)
        total = 0.0
        for at, token in enumerate(label):
            allowed = sorted({each[at] for each in labels if each[:at] == label[:at]})
            weighed = logs[len(prompt) + at - 1]
            total += float(weighed[token] - weighed[allowed].logsumexp(0))
        found.append(total)
    return found


def main() -> int:
    """Print what is found; how many answers were wrong."""
    prepare()
    from relquery.backends.load import load

    backend: Any = load(f"vllm:{model_path()}", **SMALL)
    model, tokenizer, draw = network(), backend._tokenizer, random.Random(0)
    prompts = [
        (Span("Be brief.", Role.SYSTEM), Span(" ".join(draw.choices(WORDS, k=draw.randint(3, 60)))))
        for _ in range(COUNT)
    ]
    tokens = [_tokens(tokenizer, prompt) for prompt in prompts]
    wrong = 0
    given = dict(backend.answer(prompts, Sampling(max_tokens=LENGTH)))
    for at, prompt in enumerate(tokens):
        expected = greedy(model, prompt, tokenizer.eos_token_id)
        wrong += tokenizer.decode(expected, skip_special_tokens=True) != given[at].text
    print(f"{COUNT} texts, {wrong} of them others than greedy ones")
    ends = [tokenizer.encode(label, add_special_tokens=False) for label in LABELS]
    ends = [[*each, tokenizer.eos_token_id] if _is_begun(each, ends) else each for each in ends]
    weighed = dict(backend.answer(prompts, Sampling(labels=LABELS, max_tokens=1, scored=True)))
    plain = dict(backend.answer(prompts, Sampling(labels=LABELS, max_tokens=1)))
    worst = 0.0
    for at, prompt in enumerate(tokens):
        found = weighed[at].scores
        for label, expected_score in zip(LABELS, scores(model, prompt, ends), strict=True):
            worst = max(worst, abs(found[label] - expected_score))
        wrong += plain[at].text != weighed[at].text
    wrong += worst > TOLERANCE
    print(f"{COUNT} questions with labels, scores at most {worst:.1e} from whole passes")
    schema = '{"type": "object", "properties": {"good": {"type": "boolean"}}, "required": ["good"]}'
    typed = dict(backend.answer(prompts[:4], Sampling(schema=schema, max_tokens=40)))
    valid = {'{"good":true}', '{"good":false}'}
    wrong += sum(each.text not in valid for each in typed.values())
    print(f"JSON: {', '.join(sorted({each.text or '' for each in typed.values()}))}")
    backend.close()
    return wrong


def _is_begun(label: list[int], labels: list[list[int]]) -> bool:
    return any(each != label and each[: len(label)] == label for each in labels)


def _tokens(tokenizer: Any, prompt: tuple[Span, ...]) -> list[int]:
    messages = [{"role": span.role.value, "content": span.content} for span in prompt]
    if tokenizer.chat_template:
        text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        return list(tokenizer.encode(text, add_special_tokens=False))
    return list(tokenizer.encode("".join(f"{each['content']}\n\n" for each in messages)))


if __name__ == "__main__":
    sys.exit(main())
