"""What was submitted to an engine, as those see it who wait for it."""

from __future__ import annotations

from collections.abc import Iterator
from numbers import Real

from relquery.backends.service.delivery import Bell, Delivery
from relquery.backends.service.serving import Serving
from relquery.engine.requests.relquery import Latency
from relquery.errors import ConfigError
from relquery.prompt import Answer


class Job:
    """A relQuery that was submitted. Made by Engine.submit; any thread may use it.

    Iterating gives (index into prompts, answer) as answers come, and ends after the last; each
    iteration gives all of them. It waits where need be, and raises what broke the job. The length
    is the number of prompts.
    """

    def __init__(self, serving: Serving, delivery: Delivery) -> None:
        self._serving, self._delivery = serving, delivery

    def __len__(self) -> int:
        return self._delivery.size

    def __iter__(self) -> Iterator[tuple[int, Answer]]:
        return self._follow(None)

    def result(self, timeout: float | None = None) -> list[Answer]:
        """All answers, in the order of the prompts.

        timeout: seconds to wait at most; None for as long as it takes. Raises TimeoutError after
        them, while the job goes on, and what broke the job.
        """
        if isinstance(timeout, bool) or not isinstance(timeout, Real | None):
            raise ConfigError(f"timeout is {timeout!r}; it must be a number of seconds, or None.")
        until = None if timeout is None else self._serving.clock.now() + float(timeout)
        answers = dict(self._follow(until))
        return [answers[index] for index in range(len(self))]

    @property
    def answered(self) -> int:
        """Prompts whose answer has come, be it an error. Does not wait."""
        return len(self._delivery.came)

    @property
    def done(self) -> bool:
        """Whether all answers have come, or what broke the job."""
        return self._delivery.over

    @property
    def latency(self) -> Latency | None:
        """Seconds from `submit` to the last answer; None until then, or if it was never begun."""
        return self._delivery.latency

    def cancel(self) -> bool:
        """End the prompts that have no answer yet; False if there are none.

        Their answers say so. Waits for the step that runs.
        """
        return not self.done and self._serving.cancel(self._delivery)

    def estimate(self) -> float | None:
        """Predicted seconds from now to the last answer: 0 once it is done; None if not known.

        Waits for the step that runs.
        """
        return 0.0 if self.done else self._serving.forecast(self._delivery)

    def __repr__(self) -> str:
        state = "failed after " if self._delivery.error else ""
        return f"<Job, {state}{self.answered} of {len(self)} answers>"

    def _follow(self, until: float | None) -> Iterator[tuple[int, Answer]]:
        """until: on the clock, when to give up."""

        def wait(bell: Bell) -> None:
            try:
                self._serving.hear(bell, until)
            except TimeoutError:
                raise TimeoutError(
                    f"Timed out with {self.answered} of {len(self)} answers. The job is still "
                    "running: call result() again, or cancel it."
                ) from None

        return self._delivery.follow(wait)
