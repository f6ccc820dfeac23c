"""Outputs are names with types."""

from __future__ import annotations

import pytest

from relquery.errors import ConfigError
from relquery.frames.arguments import NewColumn, read_outputs


def test_outputs_are_read() -> None:
    for text, *outputs in [
        ("tag", ("tag", "VARCHAR")),
        ("tag VARCHAR", ("tag", "VARCHAR")),
        ("_map", ("_map", "VARCHAR")),
        ('"my tag" INTEGER', ("my tag", "INTEGER")),
        ("a DECIMAL(1,2), b ENUM('x, y')", ("a", "DECIMAL(1,2)"), ("b", "ENUM('x, y')")),
        ('"a,""b" INT[]', ('a,"b', "INT[]")),
    ]:
        assert read_outputs(text, "sem_map") == tuple(NewColumn(*one) for one in outputs)


def test_other_texts_are_refused() -> None:
    for text in ("", ",", "a INT,", "(x)", None, "a INT, A INT"):
        with pytest.raises(ConfigError, match="output of sem_map"):
            read_outputs(text, "sem_map")
