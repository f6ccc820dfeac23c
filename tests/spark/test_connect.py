"""Spark Connect, which has no sparkContext, runs the same tests."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

from tests.programs import needed
from tests.spark.conftest import REMOTE, ROOT

MODULES = ("test_queries.py", "test_settings.py", "test_page.py")


@pytest.mark.long
@pytest.mark.skipif(find_spec("grpc") is None, reason="needs pyspark[connect]")
@pytest.mark.skipif(REMOTE in os.environ, reason="runs these tests itself")
def test_a_session_of_spark_connect_runs_the_same_tests() -> None:
    needed("java")
    files = [f"tests/spark/{name}" for name in MODULES]
    paths = [str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "0", *files],
        capture_output=True,
        check=False,
        text=True,
        cwd=ROOT,
        env={**os.environ, REMOTE: "local[2]", "PYTHONPATH": os.pathsep.join(filter(None, paths))},
    )
    assert ran.returncode == 0, ran.stdout[-3000:]
