"""Whatever comes, in whatever order: every answer is the one that its prompt has alone."""

from __future__ import annotations

import pytest

from relquery.config import POLICIES, PolicyName
from tests.engine.storm import Storm


@pytest.mark.parametrize("policy", POLICIES)
def test_in_any_storm_each_request_has_the_answer_that_it_has_alone(policy: PolicyName) -> None:
    for seed in range(10):
        Storm(policy, seed).run()
