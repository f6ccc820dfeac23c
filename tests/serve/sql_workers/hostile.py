"""Statements that take too much, made at random."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

BIG = (10**6, 10**7, 10**8, 2 * 10**9, 10**12)
DEEP = (50, 500, 5_000, 20_000)
VALUES = (
    "repeat('x', {n})",
    "lpad('x', {n}::INT, 'y')",
    "rpad('x', {n}::INT, 'y')",
    "bitstring('0', {n}::INT)",
    "range({n})",
    "generate_series(1, {n})",
    "list_resize([1], {n})",
    "array_resize([1], {n}, 7)",
    "bar(1, 0, 1, {n})",
    "format('{{:>{n}}}', 1)",
    "printf('%*d', {n}::INT, 1)",
    "replace(repeat('a', 10000), 'a', repeat('b', {n} // 10000))",
    "regexp_replace(repeat('a', 10000), 'a', repeat('b', {n} // 10000), 'g')",
    "translate(repeat('a', {n}), 'a', 'b')",
    "hex(repeat('a', {n} // 2))",
    "base64(repeat('a', {n})::BLOB)",
    "repeat('a', {n})::BLOB",
    "repeat('1', {n})::BIGNUM",
    "string_split(repeat('a,', {n} // 2), ',')",
    "list_transform(range({n} // 1000), lambda x: repeat('x', 1000))",
    "list_transform(range(100000), lambda x: range({n} // 100000))",
    "list_reduce(range(64), lambda x, y: x + y) + len(repeat('x', {n}))",
    "list_reduce(list_transform(range(40), lambda x: 'xx'), lambda x, y: x || x || y)",
    "list_reduce(list_transform(range(40), lambda x: [x]), lambda x, y: x || x || y)",
    "list_sort(range({n}), 'DESC')",
    "array_to_string(range({n}), ',')",
    "flatten([range({n}), range({n})])",
    "list_zip(range({n}), range({n}), range({n}))",
    "map(range({n}), range({n}))",
    "to_json(range({n}))",
    "json_array(repeat('x', {n}), repeat('y', {n}))",
    "(SELECT string_agg(repeat('x', 1000), '') FROM range({n} // 1000))",
    "(SELECT list(range) FROM range({n}))",
    "(SELECT histogram(range) FROM range({n}))",
    "(SELECT map_from_entries(list((range, range))) FROM range({n}))",
    "levenshtein(repeat('a', {n} // 100), repeat('b', {n} // 100))",
    "jaro_similarity(repeat('ab', {n} // 100), repeat('ba', {n} // 100))",
    "factorial(33) * len(repeat('x', {n}))",
    "sha256(repeat('x', {n}))",
    "regexp_extract_all(repeat('a', {n}), 'a')",
    "unnest(range({n}))",
    "strftime(DATE '2020-01-01', repeat('%A', {n} // 2))",
)
ROWS = (
    "SELECT * FROM range({n})",
    "SELECT repeat('x', 9999) FROM range({n})",
    "SELECT count(*) FROM range({n}) a, range({n}) b, range({n}) c WHERE a.range < b.range",
    "SELECT sum(a.range * b.range % 7) FROM range({n}) a, range({n}) b",
    "SELECT * FROM range({n}) a, range({n}) b ORDER BY hash(a.range + b.range)",
    "SELECT range, row_number() OVER (ORDER BY hash(range)) FROM range({n})",
    "SELECT DISTINCT hash(range) FROM range({n})",
    "SELECT range // 2, list(repeat('x', 100)) FROM range({n}) GROUP BY ALL",
    "SELECT median(hash(range)), mode(range), quantile_cont(range, 0.3) FROM range({n})",
    "SELECT sum(sin(range) * cos(range) ^ 0.3) FROM range({n}) t, range(1000)",
    "WITH RECURSIVE t AS (SELECT 1 AS a UNION ALL SELECT a + 1 FROM t) SELECT count(*) FROM t",
    "WITH RECURSIVE t AS (SELECT 1 AS a UNION ALL SELECT a FROM t, range(9)) FROM t",
    "WITH RECURSIVE t AS (SELECT 'x' AS a UNION ALL SELECT a || a FROM t) SELECT len(a) FROM t",
    "SELECT a.movietitle || b.movietitle FROM movies a, movies b, movies c, movies d ORDER BY 1",
    "SELECT string_agg(a.reviewcontent, '') FROM movies a, movies b, range({n})",
    "SELECT * FROM (SELECT range AS a FROM range({n})) PIVOT (count(*) FOR a IN (1, 2, 3))",
    "SELECT LLM('Write.', range, max_tokens := 200) FROM range({n})",
    "SELECT AI_FILTER('Good?', repeat('x', 1000) || range) FROM range({n})",
    "SUMMARIZE SELECT hash(range)::VARCHAR, range FROM range({n})",
    "SELECT regexp_matches(repeat('a', 5000), repeat('(a*)*', 50) || 'b') FROM range({n})",
    "SELECT regexp_matches('a', repeat('(a{{1,100}}){{1,100}}', 9))",
    "SELECT repeat('a', 20000) LIKE repeat('%a', 5000) || 'b' FROM range({n})",
)


def _nested(deep: int) -> list[str]:
    """Statements with so many parts, or so deep."""
    return [
        f"SELECT {'(' * deep}1{')' * deep}",
        f"SELECT {'NOT ' * deep}true",
        f"SELECT {'-' * 1}{'1+' * deep}1",
        f"SELECT {'[' * deep}1{']' * deep}",
        f"SELECT {'abs(' * deep}1{')' * deep}",
        f"SELECT {'CASE WHEN true THEN ' * deep}1{' END' * deep}",
        f"{'SELECT * FROM (' * deep}SELECT 1{')' * deep}",
        f"SELECT {'(SELECT ' * deep}1{')' * deep}",
        " UNION ALL ".join(["SELECT 1"] * deep),
        f"SELECT {','.join(['1'] * deep)}",
        f"SELECT 1 IN ({','.join(['1'] * deep)})",
        f"SELECT '{'x' * deep * 4}'",
        f"SELECT {'9' * deep}",
        f"SELECT 1 FROM {','.join(['range(9)'] * min(deep, 60))}",
        f"SELECT {'{' * 1}'a': {'[{' * 1}'b': 1}}]{'}'}",
        f"WITH {','.join(f'a{at} AS (SELECT 1)' for at in range(deep))} SELECT 1",
    ]


def statements(count: int, seed: int) -> Iterator[str]:
    """So many, of all kinds in turn."""
    random = Random(seed)

    def value(forms: tuple[str, ...]) -> str:
        return random.choice(forms).format(n=random.choice(BIG))

    kinds: list[Callable[[], str]] = [
        lambda: f"SELECT {value(VALUES)}",
        lambda: f"SELECT len({value(VALUES[:30])}::VARCHAR)",
        lambda: value(ROWS),
        lambda: f"SELECT {value(VALUES)} FROM range({random.choice(BIG)})",
        lambda: random.choice(_nested(random.choice(DEEP)))[:99_000],
    ]
    for at in range(count):
        yield kinds[at % len(kinds)]()
