"""Functions of rows and groups: what each asks, what its value is, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from relquery.connection import Connection
from relquery.errors import ConfigError, QueryError
from relquery.prompt import Answer, Finish, Sampling
from tests.sql.fakes import FakeBackend, Fields
from tests.sql.scripts import Script, scripts


def by_length(fields: Fields) -> Answer:
    """Scores of a rank."""
    likely = {"Dune": -0.1, "Alien": -0.5, "Amelie": -1.0, "Brazil": -2.0}
    yes = likely.get(fields["title"], -3.0)
    return Answer("Yes", Finish.STOP, scores={"Yes": yes, "No": -9.0})


@scripts(__file__, "rows", "groups", "prompts", "texts", "refused")
def test_statements(script: Script, con: Connection, backend: FakeBackend) -> None:
    script.run(con, backend, by_length=by_length)


def test_a_type_that_the_model_cannot_follow_is_refused_before_the_first_call(
    con: Connection, backend: FakeBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(sampling: Sampling) -> None:
        if sampling.schema is not None:
            raise ConfigError("This schema cannot be followed.")

    monkeypatch.setattr(backend, "check", refuse)
    with pytest.raises(ConfigError, match="cannot be followed"):
        con.sql("SELECT AI_EXTRACT(title, 'n INTEGER') FROM films WHERE AI_FILTER('Good?', title)")
    assert backend.asked == []


def test_a_class_without_a_schema_is_an_error_of_ours(con: Connection) -> None:
    class Broken:
        @classmethod
        def model_json_schema(cls) -> dict[str, Any]:
            raise ValueError("no schema today")

    with pytest.raises(QueryError, match="no schema today"):
        con.sql("SELECT AI_EXTRACT(title, $shape) FROM films", {"shape": Broken})
