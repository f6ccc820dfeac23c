"""What cannot be written for Spark is refused, not written otherwise."""

from __future__ import annotations

import pytest

from relquery.errors import UnsupportedQueryError
from relquery.spark.planning.dialect import to_spark


def test_a_limit_comes_after_distinct_on() -> None:
    found = to_spark("SELECT DISTINCT ON (a) a, b FROM t ORDER BY a, c LIMIT 3")
    assert found.index("_w") < found.index("LIMIT 3")
    assert found.endswith("LIMIT 3")


def test_distinct_on_the_rows_of_qualify_is_refused() -> None:
    query = "SELECT DISTINCT ON (a) a, b FROM t QUALIFY rank() OVER (ORDER BY b) > 1 ORDER BY a"
    with pytest.raises(UnsupportedQueryError, match="in a subquery"):
        to_spark(query)
