"""Settings that make no sense are refused when a config is made, with the way to mend them."""

from __future__ import annotations

from typing import Any

import pytest

from relquery.config import EngineConfig, QueryConfig
from relquery.errors import ConfigError


def test_an_engine_is_not_configured_wrongly() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"policy": "lifo"}, "The policy 'lifo' is not known. Known: fcfs"),
        ({"policy": "relserv"}, "relserve"),
        ({"starvation": -1}, "starvation is -1"),
        ({"starvation": float("nan")}, "starvation is nan"),
        ({"starvation": "x"}, "starvation is 'x'"),
        ({"aging": None}, "aging is None"),
        ({"aging": float("inf")}, "aging is inf"),
        ({"weights": [1]}, "weights is"),
        ({"weights": {"a": "3"}}, "weight of tenant 'a' is '3'"),
        ({"weights": {"a": 0}}, "above 0"),
        ({"block_size": 0}, "block_size is 0"),
        ({"cache_tokens": 3}, "less than one block"),
        ({"cache_tokens": 10**30}, "it must be at most 1,099,511,627,776"),
        ({"share_prefixes": "no"}, "share_prefixes is 'no'; it must be True or False"),
    ]
    for given, message in cases:
        with pytest.raises(ConfigError, match=message):
            EngineConfig(**given)


def test_a_query_is_not_configured_wrongly() -> None:
    with pytest.raises(ConfigError, match="order 'sorted' is not known"):
        QueryConfig(order="sorted")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="on_error 'skip' is not known"):
        QueryConfig(on_error="skip")  # type: ignore[arg-type]


def test_a_guard_is_a_share() -> None:
    cases: list[Any] = [0, -0.1, 1.01, True, "0.9", float("nan")]
    for guard in cases:
        with pytest.raises(ConfigError, match=r"guard is .*; it must be above 0 and at most 1"):
            QueryConfig(guard=guard)


def test_a_guard_compares_a_whole_number_of_rows() -> None:
    cases: list[Any] = [0, -1, True, 2.5, "50"]
    for rows in cases:
        with pytest.raises(ConfigError, match=r"guard_rows is .*; it must be a whole number"):
            QueryConfig(guard=0.9, guard_rows=rows)


def test_defaults_are_fine() -> None:
    assert EngineConfig().policy == "sarathi"
    assert EngineConfig(starvation=None, weights={"a": 2}).weights == {"a": 2}
