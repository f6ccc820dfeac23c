"""A query with LLM calls gives what DuckDB gives when the model is written as SQL."""

from __future__ import annotations

import pytest

from relquery.connection import Connection

ORDERED = [
    # paper 000's types T1 to T4
    "SELECT title FROM films WHERE LLM('yes', title) = 'Yes' ORDER BY id",
    "SELECT LLM('up', genre, title) FROM films ORDER BY id",
    "SELECT id, LLM('up', title) FROM films WHERE LLM('yes', genre) = 'Yes' ORDER BY id",
    "SELECT AVG(LLM('len', genre, title)) AS score FROM films",
    "SELECT genre, AVG(LLM('len', title)) AS s FROM films GROUP BY genre ORDER BY s DESC, genre",
    # clauses
    "SELECT title, LLM('len', title) + 1 FROM films ORDER BY LLM('len', title), id",
    "SELECT id FROM films ORDER BY LLM('up', title) DESC NULLS FIRST, id LIMIT 2 OFFSET 1",
    "SELECT LLM('yes', title) AS y, count(*) FROM films GROUP BY y ORDER BY y",
    "SELECT LLM('yes', title) AS y, count(*) FROM films GROUP BY 1 ORDER BY 1",
    "SELECT LLM('yes', title) AS y, count(*) FROM films GROUP BY ALL ORDER BY ALL",
    "SELECT LLM('yes', title), count(*) FROM films GROUP BY LLM('yes', title) ORDER BY 1",
    "SELECT genre FROM films GROUP BY genre HAVING sum(LLM('len', title)) > 9 ORDER BY genre",
    "SELECT genre, LLM('up', genre) FROM films GROUP BY genre ORDER BY genre",
    "SELECT genre, LLM('up', genre) || count(*) FROM films GROUP BY genre ORDER BY genre",
    "SELECT DISTINCT LLM('up', genre) AS g FROM films ORDER BY g",
    "SELECT DISTINCT ON (genre) id, LLM('up', title) FROM films ORDER BY genre, id",
    "SELECT id, CASE WHEN LLM('yes', title) = 'Yes' THEN 1 ELSE 0 END FROM films ORDER BY id",
    "SELECT id, CASE WHEN seen THEN LLM('up', title) ELSE genre END FROM films ORDER BY id",
    "SELECT id, coalesce(LLM('up', title), 'x') || '!' FROM films ORDER BY id",
    "SELECT count(*) FILTER (WHERE LLM('yes', title) = 'Yes'), count(*) FROM films",
    "SELECT count(DISTINCT LLM('up', title)), min(LLM('up', title)), max(stars) FROM films",
    "SELECT id, rank() OVER (ORDER BY LLM('len', title), id) FROM films ORDER BY id",
    "SELECT id FROM films QUALIFY row_number() OVER (PARTITION BY LLM('yes', title) ORDER BY id)"
    " = 1 ORDER BY id",
    "SELECT sum(LLM('len', title)) OVER w FROM films WINDOW w AS (ORDER BY id) ORDER BY id",
    # predicates
    "SELECT id FROM films WHERE LLM('yes', title) = 'Yes' AND stars > 3 ORDER BY id",
    "SELECT id FROM films WHERE LLM('yes', title) = 'Yes' OR LLM('yes', genre) = 'No' ORDER BY id",
    "SELECT id FROM films WHERE NOT (LLM('yes', title) = 'Yes' AND seen) ORDER BY id",
    "SELECT id FROM films WHERE LLM('up', title) IN ('ALIEN', 'DUNE') ORDER BY id",
    "SELECT id FROM films WHERE LLM('up', title) LIKE 'A%' AND LLM('len', title) > 5 ORDER BY id",
    "SELECT id FROM films WHERE LLM('len', title) BETWEEN 5 AND 6 ORDER BY id",
    "SELECT id FROM films WHERE LLM('up', title) IN (SELECT upper(title) FROM films WHERE seen)"
    " ORDER BY id",
    "SELECT id FROM films WHERE id IN (SELECT film FROM reviews WHERE LLM('yes', text) = 'No')"
    " ORDER BY id",
    "SELECT id FROM films f WHERE EXISTS (SELECT 1 FROM reviews r WHERE r.film = f.id)"
    " AND LLM('yes', title) = 'No' ORDER BY id",
    # expressions, structs, lists, lambdas
    "SELECT LLM('up', upper(title) || genre) FROM films ORDER BY id",
    "SELECT LLM('up', info.lang), info.year FROM films ORDER BY id",
    "SELECT LLM('up', f.info.lang), tags[1] FROM films f ORDER BY id",
    "SELECT LLM('up', title), list_transform(tags, lambda x: x || title) FROM films ORDER BY id",
    "SELECT LLM('up', title), [upper(t) FOR t IN tags IF t != 'ship'] FROM films ORDER BY id",
    "SELECT LLM('up', title), {'a': id, 'b': genre} FROM films ORDER BY id",
    "SELECT LLM('up', title), CAST(stars AS INTEGER), stars::VARCHAR FROM films ORDER BY id",
    "SELECT LLM('up', title), title.upper().lower(), films.title.upper() FROM films ORDER BY id",
    "SELECT LLM('up', title.upper()), LLM('up', title).lower() FROM films ORDER BY id",
    "SELECT LLM('up', title), ARRAY(SELECT text FROM reviews r WHERE r.film = f.id ORDER BY text)"
    " FROM films f ORDER BY f.id",
    "SELECT LLM('up', title), ARRAY(SELECT text FROM reviews ORDER BY text) FROM films ORDER BY id",
    "SELECT LLM('up', title), id = ANY (SELECT film FROM reviews) FROM films ORDER BY id",
    "SELECT LLM('up', title), films, films.info FROM films ORDER BY id",
    "SELECT max(LLM('up', title)), histogram(genre), sum(id), count(*) FILTER (seen) FROM films",
    "SELECT max(LLM('up', title)), arg_max(title, id), list(id ORDER BY id), max(id, 2) FROM films",
    "SELECT max(LLM('up', title)), percentile_cont(0.5) WITHIN GROUP (ORDER BY id) FROM films",
    # aliases
    "SELECT LLM('up', title) AS t, t || '!' AS u FROM films WHERE t LIKE 'A%' ORDER BY id",
    "SELECT stars * 2 AS s, LLM('up', s) FROM films ORDER BY id",
    "SELECT id AS title, LLM('up', title) AS genre FROM films ORDER BY genre, title",
    "SELECT LLM('up', title) AS stars FROM films ORDER BY stars, id",
    "SELECT upper(title) AS genre, LLM('up', id) FROM films ORDER BY genre || 'x', id",
    "SELECT upper(title) AS genre, LLM('up', id) FROM films ORDER BY genre || 'x', id LIMIT 3",
    "SELECT stars AS id, LLM('up', title) FROM films ORDER BY -id, films.id LIMIT 3",
    # joins
    "SELECT f.title, LLM('up', r.text) FROM films f JOIN reviews r ON f.id = r.film ORDER BY r.id",
    "SELECT f.id, r.id, LLM('up', f.id, r.text) FROM films f LEFT JOIN reviews r ON f.id = r.film"
    " ORDER BY ALL",
    "SELECT * , LLM('up', text) FROM films JOIN (SELECT film AS id, text FROM reviews) USING (id)"
    " ORDER BY id, text",
    "SELECT f.id, r.id FROM films f JOIN reviews r ON f.id = r.film AND LLM('yes', r.text) = 'No'"
    " ORDER BY ALL",
    "SELECT f.id, r.id FROM films f, reviews r WHERE f.id = r.film AND LLM('up', r.text) = 'GREAT'",
    "SELECT a.id, b.id FROM films a CROSS JOIN films b WHERE LLM('up', a.title) ="
    " LLM('up', b.title) AND a.id < b.id ORDER BY ALL",
    "SELECT LLM('up', u.x) FROM films, unnest(tags) AS u(x) ORDER BY id, x",
    "SELECT LLM('up', range) FROM range(3) ORDER BY range",
    "SELECT f.id, LLM('up', title) FROM films f SEMI JOIN reviews r ON f.id = r.film ORDER BY id",
    "SELECT f.id, r.text, LLM('up', title) FROM films f ASOF JOIN reviews r ON f.id >= r.film"
    " ORDER BY f.id",
    "SELECT f.id, LLM('up', c) FROM films f LEFT JOIN LATERAL (SELECT max(text) c FROM reviews r"
    " WHERE r.film = f.id) ON true ORDER BY f.id",
    "SELECT genre, seen, count(LLM('up', title)) FROM films"
    " GROUP BY GROUPING SETS ((genre), (seen)) ORDER BY ALL",
    "FROM (PIVOT (SELECT genre, seen, LLM('up', id) AS u FROM films) ON genre USING max(u)"
    " GROUP BY seen) ORDER BY seen",
    # subqueries, WITH, set operations
    "SELECT avg(s) FROM (SELECT CAST(LLM('len', title) AS DOUBLE) AS s FROM films)",
    "SELECT g, LLM('up', g) FROM (SELECT LLM('up', genre) AS g FROM films WHERE seen) ORDER BY g",
    "SELECT (SELECT max(LLM('up', title)) FROM films), id FROM reviews ORDER BY id",
    "SELECT LLM('up', title), (SELECT count(*) FROM reviews r WHERE r.film = f.id) FROM films f"
    " ORDER BY f.id",
    "SELECT LLM('up', (SELECT max(text) FROM reviews r WHERE r.film = f.id)) FROM films f"
    " ORDER BY f.id",
    "SELECT LLM('up', title), (SELECT count(*) FROM reviews) FROM films ORDER BY id",
    "WITH good AS (SELECT * FROM films WHERE LLM('yes', title) = 'Yes') SELECT id, title FROM good"
    " ORDER BY id",
    "WITH a AS (SELECT id, LLM('up', title) AS t FROM films), b AS (SELECT t, LLM('up', id) AS u"
    " FROM a WHERE t LIKE 'A%') SELECT t, u, LLM('up', u) FROM b ORDER BY ALL",
    "WITH s AS (SELECT id FROM films WHERE seen) SELECT LLM('up', title) FROM films"
    " WHERE id IN (SELECT id FROM s) ORDER BY id",
    "WITH films AS (SELECT 7 AS id, 'inner' AS title) SELECT LLM('up', title), id FROM films",
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 4)"
    " SELECT i, LLM('up', i) FROM n ORDER BY i",
    "SELECT LLM('up', title) FROM films UNION ALL SELECT LLM('up', text) FROM reviews ORDER BY 1",
    "SELECT title FROM films UNION SELECT LLM('up', text) FROM reviews ORDER BY 1",
    "SELECT id FROM films WHERE LLM('yes', title) = 'Yes' EXCEPT SELECT film FROM reviews"
    " ORDER BY 1",
    "FROM films SELECT id, LLM('up', title) ORDER BY id",
    "SELECT * FROM (FROM films SELECT *, LLM('up', title) AS u) WHERE u > 'B' ORDER BY id",
    # nested calls
    "SELECT id, LLM('up', title) AS u FROM films WHERE LLM('yes', LLM('up', genre)) = 'Yes'"
    " ORDER BY id",
    "SELECT LLM('len', LLM('up', title)) + 1 FROM films ORDER BY id",
    # calls on aggregates
    "SELECT genre, LLM('up', string_agg(title, ',' ORDER BY id)) FROM films GROUP BY genre"
    " ORDER BY genre",
    "SELECT f.genre g, LLM('up', genre || max(stars)) u, count(*) FROM films f GROUP BY 1 HAVING"
    " count(*) > 1 AND LLM('yes', min(title)) = 'No' ORDER BY u DESC, g LIMIT 3",
    "SELECT upper(genre), LLM('up', avg(LLM('len', title))) FROM films GROUP BY ALL ORDER BY 1",
    "SELECT LLM('up', count(*)), sum(stars) FILTER (WHERE seen) FROM films",
    "SELECT * FROM (SELECT LLM('up', count(*)) AS n, seen FROM films GROUP BY seen) ORDER BY ALL",
    "SELECT genre, rank() OVER (ORDER BY count(*), genre), LLM('up', max(id)) FROM films"
    " GROUP BY genre ORDER BY genre",
    "WITH f AS (SELECT * FROM films) SELECT LLM('up', sum(id)) FROM f HAVING count(*) > 1",
    # stars and names
    "SELECT *, LLM('up', title) AS id FROM films ORDER BY films.id",
    "SELECT f.*, LLM('up', r.text), r.* FROM films f JOIN reviews r ON f.id = r.film ORDER BY r.id",
    "SELECT info.*, LLM('up', title) FROM films ORDER BY films.id",
    "SELECT * REPLACE (upper(genre) AS genre), LLM('up', title) FROM films ORDER BY id",
    "SELECT f.* REPLACE (id + 1 AS id), LLM('up', title) FROM films f ORDER BY f.id",
    "SELECT * EXCLUDE (tags, info), LLM('up', title) FROM films ORDER BY id",
    "SELECT COLUMNS('i.*'), LLM('up', title) FROM films ORDER BY id",
    "SELECT LLM('up', \"Title\"), TITLE FROM FILMS ORDER BY ID",
    "SELECT * REPLACE (LLM('up', title) AS title) FROM films ORDER BY id",
    "SELECT f.* REPLACE (LLM('up', f.title) AS title), r.id FROM films f, reviews r "
    "WHERE r.film = f.id ORDER BY r.id",
    # nothing to ask
    "SELECT LLM('up', text) FROM empty",
    "SELECT avg(LLM('len', text)), count(*) FROM empty",
    "SELECT LLM('up', title) FROM films WHERE false",
    "SELECT id FROM films WHERE LLM('up', title) = 'nothing' AND LLM('yes', genre) = 'Yes'",
    "SELECT LLM('up', 'x')",
    "SELECT id, title FROM films ORDER BY id",
]


@pytest.mark.parametrize("query", ORDERED)
def test_rows_are_those_of_the_same_query_with_the_model_as_sql(query, con: Connection, reference):
    tables = con.tables()
    assert con.sql(query).fetchall() == reference(query)
    in_file = con.database.fetch("SELECT table_name FROM duckdb_tables() ORDER BY 1")
    assert in_file.column(0).to_pylist() == sorted(tables)  # no scratch table stays behind
