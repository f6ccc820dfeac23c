"""Outputs are names with types."""

from __future__ import annotations

import pytest

from relquery.errors import ConfigError
from relquery.frames.read.outputs import Output, read_outputs


@pytest.mark.parametrize(
    ("text", "outputs"),
    [
        ("tag", [("tag", "VARCHAR")]),
        ("tag VARCHAR", [("tag", "VARCHAR")]),
        ("_map", [("_map", "VARCHAR")]),
        ('"my tag" INTEGER', [("my tag", "INTEGER")]),
        (
            "a DECIMAL(10,2), b ENUM('x, y', 'z')",
            [("a", "DECIMAL(10,2)"), ("b", "ENUM('x, y', 'z')")],
        ),
        ('"a,""b" INT[]', [('a,"b', "INT[]")]),
    ],
)  # fmt: skip
def test_outputs_are_read(text: str, outputs: list[tuple[str, str]]) -> None:
    assert read_outputs(text, "sem_map") == tuple(Output(*one) for one in outputs)


@pytest.mark.parametrize("text", ["", ",", "a INT,", "(x)", None, "a INT, A INT"])
def test_other_texts_are_refused(text: object) -> None:
    with pytest.raises(ConfigError, match="output of sem_map"):
        read_outputs(text, "sem_map")
