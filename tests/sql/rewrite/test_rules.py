"""Each rule rewrites what it is for, and leaves alone what would change the result."""

from __future__ import annotations

from collections.abc import Callable

UP, YES = "LLM('up', title) AS a", "LLM('yes', title) = 'Yes'"
INNER = f"SELECT id, genre, {UP} FROM films"

CONDITIONS = [
    (f"SELECT * FROM ({INNER}) WHERE id < 3 AND a = 'DUNE'",
     f"SELECT * FROM ({INNER} WHERE id < 3 AND LLM('up', title) = 'DUNE')"),
    (f"SELECT p.a FROM films AS f LEFT JOIN ({INNER}) AS p ON p.id = f.id AND p.id < 3",
     "SELECT p.a FROM films AS f LEFT JOIN (SELECT id, genre, LLM('up', title) AS a FROM films "
     "WHERE id < 3) AS p ON p.id = f.id"),
    (f"SELECT * FROM ({INNER}) AS p(x, y, z) WHERE x < 3",
     f"SELECT * FROM ({INNER} WHERE id < 3) AS p(x, y, z)"),
    (f"WITH c AS ({INNER}) SELECT * FROM c WHERE id < 3",
     f"WITH c AS ({INNER} WHERE id < 3) SELECT * FROM c"),
    (f"WITH c AS ({INNER}) SELECT x.a, y.genre FROM c AS x, c AS y WHERE x.id = 1 AND y.id = 2",
     f"WITH c AS ({INNER} WHERE id = 1 OR id = 2) "
     "SELECT x.a, y.genre FROM c AS x, c AS y WHERE x.id = 1 AND y.id = 2"),
    (f"SELECT * FROM (SELECT id, {UP} FROM films UNION ALL SELECT id, text FROM reviews) "
     "WHERE id < 3",
     f"SELECT * FROM (SELECT id, {UP} FROM films WHERE id < 3 UNION ALL "
     "SELECT id, text FROM reviews WHERE id < 3)"),
    ("SELECT * FROM (SELECT genre, LLM('up', genre) AS a, COUNT(*) AS n FROM films GROUP BY genre) "
     "WHERE n > 1 AND genre > 'd'",
     "SELECT * FROM (SELECT genre, LLM('up', genre) AS a, COUNT(*) AS n FROM films "
     "WHERE genre > 'd' GROUP BY genre HAVING COUNT(*) > 1)"),
    (f"SELECT * FROM (SELECT id, genre, {UP}, RANK() OVER (PARTITION BY genre ORDER BY id) AS n "
     "FROM films) WHERE genre > 'd' AND id < 3",
     f"SELECT * FROM (SELECT id, genre, {UP}, RANK() OVER (PARTITION BY genre ORDER BY id) AS n "
     "FROM films WHERE genre > 'd') WHERE id < 3"),
    (f"SELECT * FROM (SELECT id, title FROM films WHERE {YES}) WHERE CAST(title AS INT) > 1",
     f"SELECT * FROM (SELECT id, title FROM films WHERE {YES} AND "
     "COALESCE(TRY(CAST(title AS INT) > 1), TRUE)) WHERE CAST(title AS INT) > 1"),
]  # fmt: skip
KEYS = [
    ("SELECT genre AS g, MAX(LLM('up', title)) FROM films GROUP BY g "
     "HAVING g > 'd' AND COUNT(*) > 1",
     "SELECT genre AS g, MAX(LLM('up', title)) FROM films WHERE genre > 'd' GROUP BY g "
     "HAVING COUNT(*) > 1"),
]  # fmt: skip
UNREAD = [
    (f"SELECT id FROM ({INNER})",
     "SELECT id FROM (SELECT id, genre, CAST(NULL AS TEXT) AS \"a\" FROM films)"),
    ("SELECT COUNT(*) FROM (SELECT MAX(LLM('up', title)) AS a FROM films)",
     "SELECT COUNT(*) FROM (SELECT CAST(MIN(NULL) AS TEXT) AS \"a\" FROM films)"),
    (f"WITH c AS ({INNER}) SELECT 1", "SELECT 1"),
    ("SELECT id FROM films WHERE EXISTS(SELECT LLM('up', text) FROM reviews)",
     "SELECT id FROM films WHERE EXISTS(SELECT CAST(NULL AS TEXT) AS \"llm('up', text)\" "
     "FROM reviews)"),
]  # fmt: skip
LIMITS = [
    (f"SELECT a, id FROM ({INNER}) LIMIT 3 OFFSET 2",
     f"SELECT a, id FROM ({INNER} LIMIT 5) LIMIT 3 OFFSET 2"),
    (f"SELECT a FROM ({INNER}) ORDER BY genre DESC, id LIMIT 2",
     f"SELECT a FROM ({INNER} ORDER BY 2 DESC, 1 LIMIT 2) ORDER BY genre DESC, id LIMIT 2"),
    ("SELECT LLM('up', title) FROM films UNION ALL SELECT text FROM reviews LIMIT 2",
     "(SELECT LLM('up', title) FROM films LIMIT 2) UNION ALL SELECT text FROM reviews LIMIT 2"),
    (f"SELECT id FROM films WHERE EXISTS(SELECT 1 FROM films WHERE {YES})",
     f"SELECT id FROM films WHERE EXISTS(SELECT 1 FROM films WHERE {YES} LIMIT 1)"),
]  # fmt: skip
JOINS = [
    ("SELECT f.id FROM films AS f LEFT JOIN reviews AS r ON f.id = r.film AND "
     "LLM('yes', f.title, text) = 'Yes'",
     "WITH _rq_entry_0 AS (SELECT f.title AS _rq_outer_0, text AS _rq_outer_1 FROM films AS f JOIN "
     "reviews AS r ON f.id = r.film WHERE LLM('yes', f.title, text) = 'Yes') "
     "SELECT f.id FROM films AS f LEFT JOIN reviews AS r ON f.id = r.film AND EXISTS(SELECT 1 FROM "
     "_rq_entry_0 WHERE _rq_outer_0 IS NOT DISTINCT FROM f.title AND "
     '_rq_outer_1 IS NOT DISTINCT FROM "r".text)'),
    ("SELECT id FROM films AS f WHERE id < 5 AND EXISTS(SELECT LLM('up', text) FROM reviews AS r "
     "WHERE film = f.id AND LLM('yes', title, text) = 'Yes')",
     'SELECT id FROM films AS f WHERE id < 5 AND EXISTS(SELECT 1 FROM (SELECT '
     '_rq_outer."f"."id" AS _rq_outer_0, _rq_outer."f"."title" AS _rq_outer_1 FROM (SELECT '
     'DISTINCT STRUCT_PACK("id" := "f"."id", "title" := "f"."title") AS "f" FROM films AS f '
     'WHERE id < 5) AS _rq_outer, reviews AS r WHERE film = _rq_outer."f"."id" AND '
     'LLM(\'yes\', _rq_outer."f"."title", text) = \'Yes\') AS _rq_pairs '
     'WHERE _rq_pairs._rq_outer_0 IS NOT DISTINCT FROM "f"."id" AND '
     '_rq_pairs._rq_outer_1 IS NOT DISTINCT FROM "f"."title")'),
]  # fmt: skip
KEPT = [
    f"SELECT * FROM ({INNER} LIMIT 4) WHERE id < 3",
    f"SELECT * FROM (SELECT DISTINCT ON (genre) id, {UP} FROM films) WHERE id < 3",
    f"SELECT * FROM (SELECT id, {UP}, RANK() OVER (ORDER BY id) AS n FROM films) WHERE id > 3",
    f"SELECT * FROM (SELECT id, {UP}, RANDOM() AS r FROM films) WHERE id < 3",
    f"SELECT * FROM ({INNER}) WHERE id < 3 * RANDOM()",
    f"SELECT * FROM (SELECT UNNEST(tags) AS tag, {UP} FROM films) WHERE tag > 'b'",
    f"SELECT * FROM films AS f LEFT JOIN ({INNER}) AS p ON p.id = f.id WHERE p.id IS NULL",
    f"SELECT * FROM ({INNER}) AS p LEFT JOIN films AS f ON p.id = f.id AND p.id < 3",
    f"SELECT * FROM ({INNER}) AS p FULL JOIN films AS f ON p.id = f.id WHERE p.id < 3",
    f"SELECT * FROM ({INNER}) AS p WHERE id IN (SELECT film FROM reviews)",
    f"WITH c AS MATERIALIZED ({INNER}) SELECT * FROM c WHERE id < 3",
    f"WITH c AS ({INNER}) SELECT x.a FROM c AS x, c AS y WHERE x.id = 1",
    "SELECT * FROM (SELECT MAX(id) AS id, MAX(LLM('up', title)) AS a FROM films) WHERE id < 3",
    "SELECT * FROM (SELECT genre, LLM('up', genre) AS a FROM films GROUP BY ROLLUP (genre)) "
    "WHERE genre IS NULL",
    f"SELECT * FROM (SELECT id, {UP} FROM films UNION ALL SELECT LENGTH(text), text FROM reviews) "
    "WHERE id < 3",
    "SELECT genre, MAX(LLM('up', title)) FROM films GROUP BY ROLLUP (genre) HAVING genre > 'd'",
    f"SELECT DISTINCT genre FROM (SELECT DISTINCT genre, {UP} FROM films)",
    f"SELECT p FROM ({INNER}) AS p",
    f"SELECT * FROM ({INNER}) NATURAL JOIN films",
    f"SELECT 1 FROM (SELECT genre, {UP} FROM films UNION SELECT genre, title FROM films)",
    f"SELECT a FROM ({INNER}) WHERE id IN (SELECT film FROM reviews) LIMIT 3",
    f"SELECT DISTINCT a FROM ({INNER}) LIMIT 3",
    f"SELECT a, RANK() OVER (ORDER BY id) FROM ({INNER}) LIMIT 3",
    f"SELECT a FROM ({INNER}) ORDER BY id + 1 LIMIT 3",
    f"SELECT a FROM ({INNER}) LIMIT 10 PERCENT",
    "SELECT LLM('up', title) FROM films UNION SELECT text FROM reviews LIMIT 2",
]  # fmt: skip


def test_a_rule_rewrites_once(rewritten: Callable[[str], str]) -> None:
    for query, after in [*CONDITIONS, *KEYS, *UNREAD, *LIMITS]:
        assert rewritten(query) == after
        assert rewritten(after) == after


def test_conditions_about_pairs_become_joins(rewritten: Callable[[str], str]) -> None:
    for query, after in JOINS:
        assert rewritten(query) == after


def test_what_would_change_the_result_is_kept(rewritten: Callable[[str], str]) -> None:
    for query in KEPT:
        assert rewritten(query) == query
