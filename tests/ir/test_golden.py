"""Each rule turns the trees of its golden file into what stands beside them."""

from __future__ import annotations

from pathlib import Path

import pytest

from relquery.ir import optimize
from relquery.ir.optimize import rewrite
from relquery.ir.text import parse_tree
from tests.ir.golden_rules import RULES

FOLDER = Path(__file__).parent / "golden"


@pytest.mark.parametrize("name", RULES)
def test_a_rule_gives_what_its_golden_file_says(name: str) -> None:
    for case in (FOLDER / f"{name}.txt").read_text(encoding="utf-8").split("\n\n"):
        said, _, trees = case.partition("\n")
        before, _, after = trees.strip().partition("\n=>\n")
        tree = parse_tree(before)
        assert str(rewrite(tree, RULES[name])) == (before if after == "(same)" else after), said
        assert str(tree) == before


def test_every_rule_has_a_golden_file_and_its_function_bears_its_name() -> None:
    used = {rule.__name__ for rules in optimize.RULES.values() for rule in rules}
    assert used | {"desugar_retrieve", "reduce_tree"} == set(RULES)
    assert set(RULES) == {file.stem for file in FOLDER.glob("*.txt")}
    assert all(rules[0].__name__ == name for name, rules in RULES.items())
