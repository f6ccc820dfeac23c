"""One request in the engine: its tokens, its progress and what it may answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from relquery.engine.keys import ROOT, block_key
from relquery.prompt import Finish

Tokens = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Draw:
    """How the next token is chosen from the logits.

    seed: base of the random stream; with the number of tokens drawn so far it fixes each draw.
    allowed: the only token ids to choose from; empty for all.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0
    allowed: tuple[int, ...] = ()


@dataclass(slots=True, eq=False)
class Request:
    """A prompt on its way to an answer. Only the engine's loop changes it.

    prompt: (tokens,) token ids. max_tokens: bound of the answer, the context's limit included.
    end: token ids that end the answer and are not part of it. stop: whether an output that has
    just grown contains a stop string. choices: if not empty, the answer is one of these token
    sequences. group: id of the relQuery that the request belongs to.
    """

    id: int
    prompt: Tokens
    max_tokens: int
    draw: Draw = Draw()
    end: frozenset[int] = frozenset()
    stop: Callable[[Sequence[int]], bool] | None = None
    choices: tuple[tuple[int, ...], ...] = ()
    group: int = 0
    arrival: float = 0.0

    output: list[int] = field(default_factory=list)
    finish: Finish | None = None
    error: str | None = None
    finished_at: float | None = None
    computed: int = 0
    """Tokens whose keys and values are in the cache."""
    cached: int | None = None
    """Prompt tokens that the cache served at first admission; None before it."""
    blocks: list[int] = field(default_factory=list)
    keys: list[bytes] = field(default_factory=list)
    """Keys of the full blocks of prompt and output, as far as they were needed."""

    @property
    def length(self) -> int:
        """Tokens of prompt and output."""
        return len(self.prompt) + len(self.output)

    @property
    def decoding(self) -> bool:
        """Whether only the newest token remains to be computed."""
        return self.computed > 0 and self.length - self.computed == 1

    def tokens(self, start: int, stop: int) -> Tokens:
        """Token ids at positions start..stop of prompt and output."""
        split = len(self.prompt)
        if stop <= split:
            return self.prompt[start:stop]
        tail = np.asarray(self.output[max(0, start - split) : stop - split], dtype=np.int32)
        return np.concatenate((self.prompt[start:split], tail)) if start < split else tail

    def key(self, index: int, block_size: int) -> bytes:
        """Key of the full block `index`; computed once."""
        while len(self.keys) <= index:
            start = len(self.keys) * block_size
            previous = self.keys[-1] if self.keys else ROOT
            self.keys.append(block_key(previous, self.tokens(start, start + block_size)))
        return self.keys[index]

    def allowed_next(self) -> tuple[int, ...]:
        """Token ids that may follow the output under `choices`, sorted; empty for all.

        Where the output is itself a choice and a longer one begins with it, the end tokens are
        allowed too.
        """
        if not self.choices:
            return ()
        done = len(self.output)
        open_choices = [choice for choice in self.choices if list(choice[:done]) == self.output]
        following = {choice[done] for choice in open_choices if len(choice) > done}
        if any(len(choice) == done for choice in open_choices):
            following |= self.end
        return tuple(sorted(following))

    def chosen(self) -> bool:
        """Whether the output is a choice that no other choice continues."""
        return bool(self.choices) and not any(
            len(choice) > len(self.output) and list(choice[: len(self.output)]) == self.output
            for choice in self.choices
        )
