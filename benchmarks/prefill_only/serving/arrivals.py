"""When the requests of a workload come: user by user, as in paper 004, or shuffled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from benchmarks.prefill_only.workloads import Workload

Pattern = Literal["users", "shuffled"]
"""users: users come as a Poisson process, each with all requests, one after another. shuffled: the
requests of all users are mixed, and come as a Poisson process."""
SPACING = 1.0
"""Between two requests of a user, of the time that a request takes at saturation.

The paper's code has 0.1 s, for devices that serve 6 to 12 of its posts a second each, so that this
is 0.6 to 1.2 there. A user's history and posts are 21,500 tokens that are not cached; at two
operations for each parameter and token, and at half of a device's peak, an A100 computes 2,400
tokens of Qwen-32B a second, an L4 3,700 of Llama-3.1-8B, and an H100 5,400 of Llama-3.3-70B in 8
bits."""


@dataclass(frozen=True, slots=True)
class Arrivals:
    """How requests come. spacing: in times that a request takes at saturation."""

    pattern: Pattern = "users"
    spacing: float = SPACING

    def draw(
        self, workload: Workload, load: float, saturation: float, seed: int
    ) -> tuple[float, ...]:
        """Seconds at which each request comes.

        load: requests per second on average, as a multiple of saturation, which is those that the
        engine serves when all come at once.
        """
        rng = np.random.default_rng((seed, 3))
        gap = 1 / (load * saturation)
        count = len(workload.prompts)
        if self.pattern == "shuffled":
            times = np.cumsum(rng.exponential(gap, count))
            return tuple(rng.permutation(times).tolist())
        users = np.array(workload.users)
        each = np.bincount(users)
        begin = np.cumsum(rng.exponential(gap * each))
        nth = np.arange(count) - np.searchsorted(users, users)
        return tuple((begin[users] + nth * self.spacing / saturation).tolist())
