"""Small tables are ordered without compiling, to the same result; what is compiled is told."""

import os
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba.core.registry import CPUDispatcher

from relquery.config import ORDERS, Order
from relquery.table.compilation import watch_compilation
from relquery.table.compiled import Compiled, interpreted
from relquery.table.cost.tokens import Encode
from relquery.table.cost.weigh import Weight
from relquery.table.reorder import reorder
from tests.table.reference import Table
from tests.table.strategies import WEIGHTS, letters, tables, words

pytestmark = pytest.mark.long

FEW_ROWS = """
import relquery, warnings
schedule = relquery.reorder({"a": ["x", "y", "x"], "b": ["p", "p", "q"]})
print(sorted(schedule.rows.tolist()))
"""


@given(
    tables(max_rows=7, bags=True),
    st.sampled_from(ORDERS),
    st.sampled_from(WEIGHTS),
    st.sampled_from([None, letters, words]),
    st.sampled_from([None, 16, 64, 4096]),
    st.booleans(),
)
def test_interpreted_code_gives_what_compiled_code_gives(
    table: Table,
    method: Order,
    weight: Weight,
    tokenizer: Encode | None,
    cache_tokens: int | None,
    discover: bool,
) -> None:
    given_rules = ["discover"] if discover else table.dependencies
    solve = partial(reorder, table.columns, method, given_rules, table.bags, weight)
    compiled = solve(tokenizer=tokenizer, cache_tokens=cache_tokens)
    with interpreted():
        plain = solve(tokenizer=tokenizer, cache_tokens=cache_tokens)
    assert np.array_equal(plain.rows, compiled.rows)
    assert np.array_equal(plain.fields, compiled.fields)
    told = [str(replace(each.report, seconds=0.0)) for each in (plain, compiled)]
    assert told[0] == told[1]


def run_apart(program: str, cache: Path) -> subprocess.CompletedProcess[str]:
    """In a process that finds nothing compiled."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        env={**os.environ, "NUMBA_CACHE_DIR": str(cache)},
        capture_output=True,
        text=True,
        check=True,
    )


def test_a_first_small_table_compiles_nothing(tmp_path: Path) -> None:
    told = run_apart(FEW_ROWS, tmp_path)
    assert told.stdout == "[0, 1, 2]\n"
    assert told.stderr == ""
    assert not list(tmp_path.rglob("*.nbc"))


def _triple(number: int) -> int:
    return 3 * number


TWO_PARTS = """
from relquery.model.kernels.compiled import compiled
from relquery.table.compiled import Compiled

def triple(number):
    return 3 * number

for made in (Compiled(triple, targetoptions={"nopython": True}), compiled(triple)):
    assert made(2) == 6
    assert made(2.5) == 7.5
"""


def test_compiling_is_told_once_whatever_is_compiled(tmp_path: Path) -> None:
    told = run_apart(TWO_PARTS, tmp_path)
    (line,) = told.stderr.splitlines()
    assert "This can take some minutes, once per installation" in line


CALLED_FROM_ANOTHER_FILE = """
import sys
sys.path.insert(0, sys.argv[1])
import relquery.compilation
relquery.compilation.LOOPS = (sys.argv[1],)
import caller
print(caller.twice(5))
"""


def test_a_change_in_another_file_is_compiled(tmp_path: Path) -> None:
    called, caller = tmp_path / "called.py", tmp_path / "caller.py"
    head = "from relquery.table.compiled import compiled\n"
    caller.write_text(
        f"{head}from called import once\n\n@compiled\ndef twice(x):\n    return 2 * once(x)\n"
    )

    def run() -> str:
        command = [sys.executable, "-c", CALLED_FROM_ANOTHER_FILE, str(tmp_path)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    called.write_text(f"{head}@compiled\ndef once(x):\n    return x + 1\n")
    assert run() == "12\n"
    called.write_text(f"{head}@compiled\ndef once(x):\n    return x + 1000\n")
    assert run() == "2010\n"


def test_compiling_is_timed() -> None:
    with watch_compilation() as compilation:
        assert Compiled(_triple, targetoptions={"nopython": True})(2) == 6
        assert Compiled(_triple, targetoptions={"nopython": True})(2.5) == 7.5
    assert 0 < compilation.seconds < 60


def test_what_others_compile_meanwhile_does_not_count(caplog: pytest.LogCaptureFixture) -> None:
    with watch_compilation() as compilation:
        assert CPUDispatcher(_triple, targetoptions={"nopython": True})(2) == 6
    assert not caplog.records
    assert compilation.seconds == 0
