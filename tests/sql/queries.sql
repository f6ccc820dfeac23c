-- A query a line, longer ones go on indented. Titles with (long): only with --all.

-- paper 000's types T1 to T4
SELECT id, LLM('up', title) FROM films WHERE LLM('yes', genre) = 'Yes' ORDER BY id
SELECT genre, AVG(LLM('len', title)) AS s FROM films GROUP BY genre ORDER BY s DESC, genre

-- paper 000's types T1 to T4 (long)
SELECT LLM('up', genre, title) FROM films ORDER BY id
SELECT AVG(LLM('len', genre, title)) AS score FROM films
SELECT title FROM films WHERE LLM('yes', title) = 'Yes' ORDER BY id

-- clauses
SELECT id FROM films ORDER BY LLM('up', title) DESC NULLS FIRST, id LIMIT 2 OFFSET 1
SELECT LLM('yes', title) AS y, count(*) FROM films GROUP BY y ORDER BY y
SELECT LLM('yes', title) AS y, count(*) FROM films GROUP BY ALL ORDER BY ALL
SELECT genre FROM films GROUP BY genre HAVING sum(LLM('len', title)) > 9 ORDER BY genre
SELECT DISTINCT ON (genre) id, LLM('up', title) FROM films ORDER BY genre, id
SELECT id, CASE WHEN seen THEN LLM('up', title) ELSE genre END FROM films ORDER BY id
SELECT count(*) FILTER (WHERE LLM('yes', title) = 'Yes'), count(*) FROM films
SELECT count(DISTINCT LLM('up', title)), min(LLM('up', title)), max(stars) FROM films
SELECT id FROM films QUALIFY row_number() OVER (PARTITION BY LLM('yes', title) ORDER BY id) = 1
  ORDER BY id

-- clauses (long)
SELECT title, LLM('len', title) + 1 FROM films ORDER BY LLM('len', title), id
SELECT LLM('yes', title) AS y, count(*) FROM films GROUP BY 1 ORDER BY 1
SELECT LLM('yes', title), count(*) FROM films GROUP BY LLM('yes', title) ORDER BY 1
SELECT genre, LLM('up', genre) FROM films GROUP BY genre ORDER BY genre
SELECT genre, LLM('up', genre) || count(*) FROM films GROUP BY genre ORDER BY genre
SELECT id, CASE WHEN LLM('yes', title) = 'Yes' THEN 1 ELSE 0 END FROM films ORDER BY id
SELECT id, coalesce(LLM('up', title), 'x') || '!' FROM films ORDER BY id
SELECT sum(LLM('len', title)) OVER w FROM films WINDOW w AS (ORDER BY id) ORDER BY id
SELECT DISTINCT LLM('up', genre) AS g FROM films ORDER BY g
SELECT id, rank() OVER (ORDER BY LLM('len', title), id) FROM films ORDER BY id

-- predicates
SELECT id FROM films WHERE LLM('yes', title) = 'Yes' OR LLM('yes', genre) = 'No' ORDER BY id
SELECT id FROM films WHERE NOT (LLM('yes', title) = 'Yes' AND seen) ORDER BY id
SELECT id FROM films WHERE LLM('up', title) LIKE 'A%' AND LLM('len', title) > 5 ORDER BY id
SELECT id FROM films WHERE id IN (SELECT film FROM reviews WHERE LLM('yes', text) = 'No') ORDER BY
  id

-- predicates (long)
SELECT id FROM films WHERE LLM('yes', title) = 'Yes' AND stars > 3 ORDER BY id
SELECT id FROM films WHERE LLM('up', title) IN ('ALIEN', 'DUNE') ORDER BY id
SELECT id FROM films WHERE LLM('up', title) IN (SELECT upper(title) FROM films WHERE seen) ORDER
  BY id
SELECT id FROM films f WHERE EXISTS (SELECT 1 FROM reviews r WHERE r.film = f.id) AND LLM('yes',
  title) = 'No' ORDER BY id
SELECT id FROM films WHERE LLM('len', title) BETWEEN 5 AND 6 ORDER BY id

-- expressions, structs, lists, lambdas
SELECT LLM('up', f.info.lang), tags[1] FROM films f ORDER BY id
SELECT LLM('up', title), [upper(t) FOR t IN tags IF t != 'ship'] FROM films ORDER BY id
SELECT LLM('up', title.upper()), LLM('up', title).lower() FROM films ORDER BY id
SELECT LLM('up', title), films, films.info FROM films ORDER BY id

-- expressions, structs, lists, lambdas (long)
SELECT LLM('up', upper(title) || genre) FROM films ORDER BY id
SELECT LLM('up', info.lang), info.year FROM films ORDER BY id
SELECT LLM('up', title), list_transform(tags, lambda x: x || title) FROM films ORDER BY id
SELECT LLM('up', title), {'a': id, 'b': genre} FROM films ORDER BY id
SELECT LLM('up', title), CAST(stars AS INTEGER), stars::VARCHAR FROM films ORDER BY id
SELECT LLM('up', title), title.upper().lower(), films.title.upper() FROM films ORDER BY id
SELECT LLM('up', title), ARRAY(SELECT text FROM reviews ORDER BY text) FROM films ORDER BY id
SELECT LLM('up', title), id = ANY (SELECT film FROM reviews) FROM films ORDER BY id
SELECT max(LLM('up', title)), histogram(genre), sum(id), count(*) FILTER (seen) FROM films
SELECT max(LLM('up', title)), arg_max(title, id), list(id ORDER BY id), max(id, 2) FROM films
SELECT LLM('up', title), ARRAY(SELECT text FROM reviews r WHERE r.film = f.id ORDER BY text) FROM
  films f ORDER BY f.id
SELECT max(LLM('up', title)), percentile_cont(0.5) WITHIN GROUP (ORDER BY id) FROM films

-- aliases
SELECT id AS title, LLM('up', title) AS genre FROM films ORDER BY genre, title
SELECT upper(title) AS genre, LLM('up', id) FROM films ORDER BY genre || 'x', id LIMIT 3
SELECT stars AS id, LLM('up', title) FROM films ORDER BY -id, films.id LIMIT 3

-- aliases (long)
SELECT stars * 2 AS s, LLM('up', s) FROM films ORDER BY id
SELECT LLM('up', title) AS stars FROM films ORDER BY stars, id
SELECT upper(title) AS genre, LLM('up', id) FROM films ORDER BY genre || 'x', id
SELECT LLM('up', title) AS t, t || '!' AS u FROM films WHERE t LIKE 'A%' ORDER BY id

-- joins
SELECT f.id, r.id, LLM('up', f.id, r.text) FROM films f LEFT JOIN reviews r ON f.id = r.film ORDER
  BY ALL
SELECT * , LLM('up', text) FROM films JOIN (SELECT film AS id, text FROM reviews) USING (id) ORDER
  BY id, text
SELECT f.id, r.id FROM films f JOIN reviews r ON f.id = r.film AND LLM('yes', r.text) = 'No' ORDER
  BY ALL
SELECT a.id, b.id FROM films a CROSS JOIN films b WHERE LLM('up', a.title) = LLM('up', b.title)
  AND a.id < b.id ORDER BY ALL
SELECT LLM('up', u.x) FROM films, unnest(tags) AS u(x) ORDER BY id, x
SELECT f.id, LLM('up', title) FROM films f SEMI JOIN reviews r ON f.id = r.film ORDER BY id
SELECT f.id, LLM('up', c) FROM films f LEFT JOIN LATERAL (SELECT max(text) c FROM reviews r WHERE
  r.film = f.id) ON true ORDER BY f.id
SELECT genre, seen, count(LLM('up', title)) FROM films GROUP BY GROUPING SETS ((genre), (seen))
  ORDER BY ALL
FROM (PIVOT (SELECT genre, seen, LLM('up', id) AS u FROM films) ON genre IN ('comedy', 'drama')
  USING max(u) GROUP BY seen) ORDER BY seen

-- joins (long)
SELECT f.id, r.id FROM films f, reviews r WHERE f.id = r.film AND LLM('up', r.text) = 'GREAT'
SELECT LLM('up', range) FROM range(3) ORDER BY range
SELECT f.id, r.text, LLM('up', title) FROM films f ASOF JOIN reviews r ON f.id >= r.film ORDER BY
  f.id
SELECT f.title, LLM('up', r.text) FROM films f JOIN reviews r ON f.id = r.film ORDER BY r.id

-- subqueries, WITH, set operations
SELECT * FROM (SELECT LLM('up', 'b') UNION ALL SELECT LLM('up', 'a')) v(x) ORDER BY x
SELECT x, LLM('up', x) FROM (SELECT title AS x FROM films UNION SELECT genre FROM films) ORDER BY
  ALL
SELECT (SELECT max(LLM('up', title)) FROM films), id FROM reviews ORDER BY id
SELECT LLM('up', (SELECT max(text) FROM reviews r WHERE r.film = f.id)) FROM films f ORDER BY f.id
WITH a AS (SELECT id, LLM('up', title) AS t FROM films), b AS (SELECT t, LLM('up', id) AS u FROM a
  WHERE t LIKE 'A%') SELECT t, u, LLM('up', u) FROM b ORDER BY ALL
WITH films AS (SELECT 7 AS id, 'inner' AS title) SELECT LLM('up', title), id FROM films
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 4) SELECT i, LLM('up', i)
  FROM n ORDER BY i
SELECT LLM('up', title) FROM films UNION ALL SELECT LLM('up', text) FROM reviews ORDER BY 1
SELECT z FROM (SELECT replace(f.u, 'A', 'b') AS z FROM (SELECT LLM('up', title) AS u FROM films) f)
  ORDER BY z
SELECT z FROM (SELECT u[1] AS z, id AS u FROM (SELECT id, LLM('up', title) AS u FROM films)) GROUP
  BY 1 ORDER BY 1
WITH a AS (SELECT LLM('up', title) AS u FROM films), b AS (SELECT left(u, 1) AS v FROM a) SELECT
  split_part(v, 'B', 1) FROM b ORDER BY 1

-- subqueries, WITH, set operations (long)
SELECT g, LLM('up', g) FROM (SELECT LLM('up', genre) AS g FROM films WHERE seen) ORDER BY g
SELECT LLM('up', title), (SELECT count(*) FROM reviews r WHERE r.film = f.id) FROM films f ORDER
  BY f.id
SELECT LLM('up', title), (SELECT count(*) FROM reviews) FROM films ORDER BY id
WITH good AS (SELECT * FROM films WHERE LLM('yes', title) = 'Yes') SELECT id, title FROM good
  ORDER BY id
WITH s AS (SELECT id FROM films WHERE seen) SELECT LLM('up', title) FROM films WHERE id IN (SELECT
  id FROM s) ORDER BY id
SELECT title FROM films UNION SELECT LLM('up', text) FROM reviews ORDER BY 1
SELECT * FROM (FROM films SELECT *, LLM('up', title) AS u) WHERE u > 'B' ORDER BY id
SELECT avg(s) FROM (SELECT CAST(LLM('len', title) AS DOUBLE) AS s FROM films)
SELECT id FROM films WHERE LLM('yes', title) = 'Yes' EXCEPT SELECT film FROM reviews ORDER BY 1
FROM films SELECT id, LLM('up', title) ORDER BY id

-- nested calls
SELECT id, LLM('up', title) AS u FROM films WHERE LLM('yes', LLM('up', genre)) = 'Yes' ORDER BY id

-- nested calls (long)
SELECT LLM('len', LLM('up', title)) + 1 FROM films ORDER BY id

-- calls on aggregates
SELECT genre, LLM('up', string_agg(title, ',' ORDER BY id)) FROM films GROUP BY genre ORDER BY
  genre
SELECT genre, rank() OVER (ORDER BY count(*), genre), LLM('up', max(id)) FROM films GROUP BY genre
  ORDER BY genre

-- calls on aggregates (long)
SELECT LLM('up', count(*)), sum(stars) FILTER (WHERE seen) FROM films
SELECT * FROM (SELECT LLM('up', count(*)) AS n, seen FROM films GROUP BY seen) ORDER BY ALL
WITH f AS (SELECT * FROM films) SELECT LLM('up', sum(id)) FROM f HAVING count(*) > 1
SELECT f.genre g, LLM('up', genre || max(stars)) u, count(*) FROM films f GROUP BY 1 HAVING
  count(*) > 1 AND LLM('yes', min(title)) = 'No' ORDER BY u DESC, g LIMIT 3
SELECT upper(genre), LLM('up', avg(LLM('len', title))) FROM films GROUP BY ALL ORDER BY 1

-- stars and names
SELECT *, LLM('up', title) AS id FROM films ORDER BY films.id
SELECT f.*, LLM('up', r.text), r.* FROM films f JOIN reviews r ON f.id = r.film ORDER BY r.id
SELECT COLUMNS('i.*'), coalesce(LLM('up', title), genre) FROM films ORDER BY id
SELECT LLM('up', "Title"), TITLE FROM FILMS ORDER BY ID

-- stars and names (long)
SELECT * REPLACE (upper(genre) AS genre), LLM('up', title) FROM films ORDER BY id
SELECT f.* REPLACE (id + 1 AS id), LLM('up', title) FROM films f ORDER BY f.id
SELECT * EXCLUDE (tags, info), LLM('up', title) FROM films ORDER BY id
SELECT f.* REPLACE (LLM('up', f.title) AS title), r.id FROM films f, reviews r WHERE r.film = f.id
  ORDER BY r.id
SELECT info.*, LLM('up', title) FROM films ORDER BY films.id
SELECT * REPLACE (LLM('up', title) AS title) FROM films ORDER BY id

-- nothing to ask
SELECT LLM('up', text) FROM empty
SELECT avg(LLM('len', text)), count(*) FROM empty
SELECT LLM('up', title) FROM films WHERE false
SELECT LLM('up', 'x')

-- nothing to ask (long)
SELECT id FROM films WHERE LLM('up', title) = 'nothing' AND LLM('yes', genre) = 'Yes'
SELECT id, title FROM films ORDER BY id

-- a literal in the select list is a value, not a position, wherever it is a key
SELECT id, LLM('up', title) AS k, 1 AS z FROM films ORDER BY z, title, id LIMIT 3
SELECT DISTINCT ON (z) id, 1 AS z, LLM('up', id) FROM films ORDER BY z, title, id
SELECT 0 AS a, 'it' AS b, sum(id) AS c FROM films WHERE LLM('up', id) <> '1' GROUP BY 1, 2
SELECT 3 AS z, LLM('up', count(*)) FROM empty GROUP BY z
SELECT id, title FROM films WHERE LLM('up', id) <> '0' ORDER BY 2, 1 LIMIT 3
SELECT -film AS k, count(*) FROM reviews WHERE LLM('up', id) <> '0' GROUP BY 1 ORDER BY -film

-- a literal in the select list is a value, not a position, wherever it is a key (long)
SELECT id, 1 AS z FROM films WHERE LLM('up', id) <> '0' ORDER BY z, title, id LIMIT 3
SELECT id, -2 AS z FROM films WHERE LLM('up', id) <> '0' ORDER BY 2, title, id LIMIT 3
SELECT id, NULL AS z FROM films WHERE LLM('up', id) <> '0' ORDER BY z, title, id LIMIT 3
SELECT LLM('up', title) AS k, 'x' AS z FROM films ORDER BY z DESC, id LIMIT 2
SELECT genre AS k, 5 AS z, max(LLM('up', title)) AS c FROM films GROUP BY k, 2 ORDER BY 1
SELECT 3 AS z, LLM('up', count(*)) FROM films GROUP BY z
SELECT DISTINCT ON (LLM('yes', genre)) id, LLM('up', title) FROM films ORDER BY 1, 2
SELECT -film, LLM('up', max(text)) FROM reviews GROUP BY 1 ORDER BY 1
SELECT -r.film AS k, LLM('up', count(*)) FROM reviews r GROUP BY k ORDER BY k
SELECT title FROM (SELECT id, title FROM films WHERE LLM('up', id) <> '0') ORDER BY title, id
  LIMIT 2
