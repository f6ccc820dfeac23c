"""What planning tells execution about an answer is checked where it is said."""

import pytest

from relquery.errors import ConfigError
from relquery.prompt import Compared, Sampling

NUMBER = '{"type": "integer"}'


def test_a_schema_is_the_json_text_of_an_object() -> None:
    assert Sampling(schema=NUMBER).schema == NUMBER
    assert Compared.by(Sampling(schema=NUMBER), ("7",)).whole == Sampling(schema=NUMBER)


@pytest.mark.parametrize(
    "schema",
    ["", "integer", "[]", "true", "{'type': 'integer'}", "[" * 100_000, {"type": "integer"}, b"{}"],
)
def test_a_schema_that_is_none_is_refused_with_what_it_must_be(schema: str) -> None:
    with pytest.raises(ConfigError, match=r"it must be the JSON text of an object.*json\.dumps"):
        Sampling(schema=schema)


def test_a_schema_that_is_none_is_shown_by_its_beginning_only() -> None:
    with pytest.raises(ConfigError) as caught:
        Sampling(schema="x" * 1_000)
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize("other", [{"labels": ("1", "2")}, {"stop": ("#",)}])
def test_a_schema_excludes_labels_and_stop_strings(other: dict[str, tuple[str, ...]]) -> None:
    (name,) = other
    with pytest.raises(ConfigError, match=f"schema and {name} are both given"):
        Sampling(schema=NUMBER, **other)
