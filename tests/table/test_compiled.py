import subprocess
import sys

PRESSES = 20

# A signal within each call: none of them may take the process down.
PRESSED = f"""
import signal
import numpy as np
from relquery.table.cost.billing import _group
from relquery.table.cost.prefix_tree import FOREVER, prefix_tree
from relquery.table.cost.tokens import Tokens
from relquery.table.dependencies.partition import refine, whole


class Pressed(Exception):
    pass


def press(number, frame):
    raise Pressed


rows = 200_000
draws = np.random.default_rng(0)
partition, counts = whole(rows), np.zeros(1000, np.int64)
codes = draws.integers(0, 1000, rows).astype(np.int32)
tokens = Tokens(draws.integers(0, 9, 10 * rows).astype(np.int32), np.arange(rows + 1) * 10)
tree = prefix_tree(tokens)
calls = [
    lambda: refine(partition, codes, counts),
    lambda: prefix_tree(tokens),
    lambda: _group(tree, FOREVER),
]
signal.signal(signal.SIGALRM, press)
caught = 0
for call in calls:
    call()
    for _ in range({PRESSES}):
        try:
            signal.setitimer(signal.ITIMER_REAL, 2e-4)
            call()
            signal.pause()
        except (Pressed, SystemError):
            caught += 1
        counts[:] = 0
print(caught)
"""


def test_a_signal_in_compiled_code_is_an_exception_not_a_crash() -> None:
    ran = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", PRESSED],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    assert int(ran.stdout) == 3 * PRESSES
