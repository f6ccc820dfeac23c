"""What a model answers by `transformers` alone, computed as simply as possible."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer


class Reference:
    """A stock network and its tokenizer."""

    def __init__(self, folder: Path, dtype: torch.dtype, attention: str = "sdpa") -> None:
        self.tokenizer: Any = AutoTokenizer.from_pretrained(folder)
        network: Any = AutoModelForCausalLM.from_pretrained(
            folder, dtype=dtype, attn_implementation=attention
        )
        self.network = network.eval()
        self.end = {self.tokenizer.eos_token_id, self.network.generation_config.eos_token_id}

    def chat(self, *turns: tuple[str, str]) -> list[int]:
        """Tokens of turns (role, text), with the assistant's turn opened; plain text without a
        template."""
        if not self.tokenizer.chat_template:
            return list(self.tokenizer("".join(text for _, text in turns))["input_ids"])
        messages = [{"role": role, "content": text} for role, text in turns]
        text = self.tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True
        )
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    @torch.inference_mode()
    def greedy(self, prompt: Sequence[int], tokens: int) -> list[int]:
        """The likeliest continuation, without the token that ends it."""
        given = torch.tensor([prompt])
        whole = self.network.generate(
            given,
            attention_mask=torch.ones_like(given),
            max_new_tokens=tokens,
            do_sample=False,
            eos_token_id=sorted(self.end),
        )
        output: list[int] = whole[0, len(prompt) :].tolist()
        return output[:-1] if output[-1] in self.end else output

    @torch.inference_mode()
    def logits(
        self, tokens: Sequence[int], apart: Sequence[range] = (), positions: Sequence[int] = ()
    ) -> Tensor:
        """The logits (tokens, vocabulary) of a whole prompt. apart: runs of tokens that attend to
        themselves alone; what follows attends to all of them. positions: of each token, where
        they do not count up from 0."""
        size = len(tokens)
        visible = torch.ones(size, size, dtype=torch.bool).tril()
        for run in apart:
            visible[run.start : run.stop, : run.start] = False
        mask = torch.zeros(size, size, dtype=self.network.dtype)
        mask.masked_fill_(~visible, torch.finfo(self.network.dtype).min)
        whole = self.network(
            input_ids=torch.tensor([tokens]),
            attention_mask=mask[None, None],
            position_ids=torch.tensor([positions or range(size)]),
            use_cache=False,
        )
        logits: Tensor = whole.logits[0].float()
        return logits

    def would_answer(self, prompt: Sequence[int], output: Sequence[int], tokens: int) -> bool:
        """Whether an output of at most so many tokens is what `greedy` gives: in one forward pass,
        each token is the likeliest after those before it."""
        likeliest = self.logits([*prompt, *output])[len(prompt) - 1 :].argmax(-1).tolist()
        is_over = len(output) == tokens or likeliest[-1] in self.end
        return likeliest[: len(output)] == list(output) and is_over

    def greedy_apart(
        self,
        prompt: Sequence[int],
        apart: Sequence[range],
        tokens: int,
        positions: Sequence[int] = (),
    ) -> list[int]:
        """The same as `greedy` with runs that attend to themselves alone, and positions."""
        output: list[int] = []
        at = list(positions or range(len(prompt)))
        while len(output) < tokens:
            token = int(self.logits([*prompt, *output], apart, at)[-1].argmax())
            if token in self.end:
                break
            output.append(token)
            at.append(at[-1] + 1)
        return output

    def label(self, prompt: Sequence[int], labels: Sequence[str]) -> list[float]:
        """Log-probability of each label and an end after the prompt, over all labels."""
        logs = []
        for label in labels:
            ids = list(self.tokenizer(label, add_special_tokens=False)["input_ids"])
            after = self.logits([*prompt, *ids])[len(prompt) - 1 : -1].log_softmax(-1)
            logs.append(float(sum(after[at, token] for at, token in enumerate(ids))))
        return (torch.tensor(logs) - torch.tensor(logs).logsumexp(0)).tolist()

    def choice(self, prompt: Sequence[int], begin: str, choices: Sequence[str]) -> str:
        """The text that greedy decoding among `choices` gives after a text that is forced."""
        forced = list(self.tokenizer(begin, add_special_tokens=False)["input_ids"])
        words = [self.tokenizer.decode([token]) for token in range(len(self.tokenizer))]
        ids, text = [*prompt, *forced], ""
        while text not in choices:
            after = self.logits(ids)[-1]
            allowed = [
                token
                for token, word in enumerate(words)
                if word and any(each.startswith(text + word) for each in choices)
            ]
            token = max(allowed, key=lambda each: float(after[each]))
            ids, text = [*ids, token], text + words[token]
        return begin + text
