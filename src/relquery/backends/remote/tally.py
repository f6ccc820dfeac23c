"""What an engine has answered so far, in numbers."""

from __future__ import annotations

from dataclasses import dataclass

from relquery.prompt import Answer, Finish


@dataclass(slots=True)
class Tally:
    """Sums over answers. prompt, cached, output: tokens; see Answer."""

    answers: int = 0
    prompt: int = 0
    cached: int = 0
    output: int = 0

    def add(self, answer: Answer) -> None:
        """Count one more; of a cancelled one the tokens that it took."""
        self.answers += answer.finish is not Finish.CANCELLED
        self.prompt += answer.prompt_tokens
        self.cached += answer.cached_tokens
        self.output += answer.output_tokens
