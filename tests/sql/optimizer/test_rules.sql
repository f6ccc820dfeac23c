@inner SELECT id, genre, title, LLM('up', id) AS a FROM films
-- only what the result depends on is asked
SELECT title, a FROM ({inner}) WHERE genre = 'drama'
= DuckDB's  # 2
SELECT count(*) FROM ({inner})
= DuckDB's  # 0
SELECT a, count(*) FROM ({inner}) WHERE LLM('yes', a) = 'Yes' GROUP BY a LIMIT 0
= DuckDB's  # 0
SELECT LLM('up', count(*)), AI_AGG('all', title) FROM films LIMIT 0
= []  # 0
SELECT * FROM (SELECT DISTINCT a, sum(id) OVER (ORDER BY a) FROM ({inner})) WHERE 1 = 0
= DuckDB's  # 0
SELECT count(*), max(LLM('up', 1)) FROM films WHERE 2 = 3
= DuckDB's  # 0
SELECT max(a), count(LLM('yes', a)) FROM ({inner}) WHERE id = 1 AND random() >= 0 AND 2 > 1
= DuckDB's  # 2
SELECT genre FROM (SELECT DISTINCT ON (genre) genre, a FROM ({inner}) ORDER BY id) ORDER BY genre
= DuckDB's  # 0
SELECT a FROM ({inner}) ORDER BY id DESC LIMIT 2 OFFSET 1
= DuckDB's  # 3
WITH c AS ({inner}), d AS (SELECT * FROM c WHERE id < 4) SELECT a FROM d WHERE id > 2
= DuckDB's  # 1
SELECT a FROM (SELECT id, LLM('up', title) AS a FROM films UNION ALL SELECT film, LLM('up', text)
  FROM reviews) WHERE id = 2
= DuckDB's  # 2
SELECT id FROM films f WHERE EXISTS (SELECT 1 FROM reviews r WHERE r.film = f.id AND LLM('yes',
  f.title, r.text) = 'Yes')
= DuckDB's  # 4
SELECT id, (SELECT max(LLM('up', text)) FROM reviews WHERE film = f.id) FROM films f
= DuckDB's  # 4
SELECT * FROM films f LEFT JOIN reviews r ON f.id = r.film AND LLM('up', r.text) = 'SCARY' WHERE
  f.id = 2
= DuckDB's  # 1
SELECT r.id, x.title FROM reviews r JOIN (SELECT * FROM films WHERE LLM('yes', title) <> 'x') x ON
  x.id = r.film WHERE r.id > 11
= DuckDB's  # 2

-- only what the result depends on is asked by other queries (long)
SELECT title FROM ({inner}) WHERE genre = 'drama'
= DuckDB's  # 0
SELECT a FROM ({inner}) LIMIT 2
= DuckDB's  # 2
WITH c AS ({inner}) SELECT a FROM c WHERE genre = 'drama' UNION ALL SELECT a FROM c WHERE id = 1
= DuckDB's  # 3
WITH c AS ({inner}), unread AS (SELECT LLM('up', title) FROM films) SELECT max(a) FROM c
= DuckDB's  # 6
WITH c AS MATERIALIZED ({inner}) SELECT 1
= DuckDB's  # 0
SELECT id FROM films f WHERE genre = 'horror' AND NOT EXISTS (SELECT 1 FROM reviews r WHERE r.film =
  f.id AND LLM('yes', f.title, r.text) = 'Yes')
= DuckDB's  # 2
SELECT * FROM films f LEFT JOIN reviews r ON f.id = r.film AND LLM('up', r.text) = 'SCARY'
= DuckDB's  # 4
SELECT id FROM films f ANTI JOIN reviews r ON f.id = r.film AND LLM('up', r.text) = 'LONG' WHERE
  genre = 'drama'
= DuckDB's  # 1

-- a LATERAL subquery may depend on the tables on its left
SELECT f.id, l.u FROM films f, LATERAL (SELECT LLM('up', r.text) AS u FROM reviews r WHERE r.film = f.id) AS l
  WHERE f.id = 1 ORDER BY ALL
= DuckDB's
SELECT id, u FROM films JOIN LATERAL (SELECT LLM('up', title) AS u) ON u LIKE '%A%' ORDER BY id
= DuckDB's
SELECT f.id, l.u, m.v FROM films f, LATERAL (SELECT LLM('up', f.title) AS u) AS l, LATERAL (SELECT
  LLM('yes', l.u) AS v) AS m ORDER BY f.id
= DuckDB's
SELECT f.id, l.c FROM films f LEFT JOIN (SELECT count(*) AS c FROM reviews r WHERE r.film = f.id AND
  LLM('yes', r.text) = 'Yes') AS l ON l.c > 0 ORDER BY f.id
= DuckDB's
SELECT f.id, l.u FROM films f LEFT JOIN LATERAL (SELECT LLM('up', r.text) AS u FROM reviews r WHERE
  r.film = f.id ORDER BY r.text LIMIT 1) AS l ON true ORDER BY f.id
= DuckDB's
SELECT f.title, l.film, l.text FROM films f, LATERAL (SELECT r.film, text FROM reviews r WHERE
  LLM('yes', r.text, f.title) = 'Yes') AS l ORDER BY ALL
= DuckDB's
SELECT id FROM reviews o WHERE 'Dune' IN (SELECT title FROM films f, LATERAL (SELECT r.text AS title2,
  r.id FROM reviews r WHERE r.film = f.id AND LLM('up', f.title, r.text) > 'A') l WHERE l.id > 0) ORDER BY id
= DuckDB's

-- a LATERAL subquery asks for what is read of it
@up LATERAL (SELECT LLM('up', r.text) AS u, r.id AS y, f.genre AS g FROM reviews r WHERE r.film >= f.id
@l {up}) AS l
SELECT f.id, l.y FROM films f, {l}
= DuckDB's  # 0
SELECT f.id, l.u FROM films f, {l} WHERE l.y > 12 AND g = 'horror'
= DuckDB's  # 2
SELECT f.id, l.u FROM films f LEFT JOIN {l} ON l.y = 10 AND l.u > 'A' WHERE f.id < 3
= DuckDB's  # 1
SELECT f.id, l.u FROM films f, {l} ORDER BY f.id, Y LIMIT 2
= DuckDB's  # 5
SELECT f.id, l.u FROM films f, {l} WHERE y > 10 ORDER BY l.y, id DESC LIMIT 1 OFFSET 1
= DuckDB's  # 4
SELECT f.id, l.u FROM films f, {l} ORDER BY l.u, f.id DESC LIMIT 2
= DuckDB's  # 5
SELECT f.id, l.u FROM films f, {up} ORDER BY r.id LIMIT 1) AS l
= DuckDB's  # 3
SELECT f.id, l.u FROM films f, {up} AND LLM('len', r.text, f.id) > 5 ORDER BY y DESC LIMIT 1) AS l
= DuckDB's  # 21
SELECT f.id, l.u FROM films f, {up} ORDER BY y DESC LIMIT 2) AS l WHERE f.id = 2
= DuckDB's  # 2
SELECT f.id, l.u FROM films f LEFT JOIN {l} ON true WHERE f.id > 4 ORDER BY f.id DESC LIMIT 2
= DuckDB's  # 2
SELECT f.id, l.u FROM films f, LATERAL (SELECT LLM('up', f.id) AS u) l WHERE stars > 2 ORDER BY stars, id LIMIT 2
= DuckDB's  # 5
SELECT f.id, (SELECT max(LLM('up', r.text)) FROM reviews r WHERE r.film = f.id) AS m FROM films f ORDER BY genre, id LIMIT 3
= DuckDB's  # 1

-- conditions go before the calls of subqueries and joins inside
@m (SELECT max(LLM('up', text)) FROM reviews WHERE film = f.id) AS m
SELECT m FROM (SELECT f.id, {m} FROM films f) d WHERE id = 2
= DuckDB's  # 1
WITH d AS (SELECT f.id, {m} FROM films f) SELECT x.m FROM d x, d y WHERE x.id = 1 AND y.id = 2
= DuckDB's  # 3
SELECT * FROM (SELECT f.id, r.text FROM films f LEFT JOIN reviews r ON f.id = r.film AND LLM('up', r.text)
  = 'SCARY') d WHERE id = 2
= DuckDB's  # 1

SELECT f.id, r.id FROM films f LEFT JOIN reviews r ON f.id = r.film AND LLM('up', r.text) = 'SCARY' WHERE
  f.id IN (SELECT id FROM films WHERE title = 'Dune')
= DuckDB's  # 4
SELECT f.a, r.text FROM (SELECT id, LLM('up', title) a FROM films) f LEFT JOIN reviews r ON f.id = r.film
  ORDER BY f.id LIMIT 2
= DuckDB's  # 2
SELECT a, (SELECT max(LLM('len', text, d.a)) FROM reviews) FROM (SELECT * FROM ({inner})) d
  ORDER BY id LIMIT 2
# 16

-- columns that USING merges, and conditions of a LATERAL join are answered
SELECT id, u FROM films FULL JOIN reviews USING (id), LATERAL (SELECT LLM('up', id) AS u)  = DuckDB's
SELECT f.id, u FROM films f LEFT JOIN LATERAL (SELECT LLM('up', text) AS u, text FROM reviews WHERE film = f.id) l
  ON LLM('yes', u, f.title) = 'Yes' AND text > 'a'
= DuckDB's

-- a condition of a join may have subqueries with calls
SELECT f.id FROM films f JOIN films g ON EXISTS (SELECT 1 FROM reviews r WHERE r.film = g.id AND
  LLM('yes', r.text, g.title) = 'Yes')
= DuckDB's
SELECT * FROM films f LEFT JOIN reviews r ON r.film = f.id AND EXISTS (SELECT * FROM films g WHERE
  g.genre = f.genre AND LLM('yes', g.title, r.text) = 'Yes')
= DuckDB's

-- in a correlated subquery, too, names of the list go before columns of the outer query
SELECT id FROM films f WHERE EXISTS (SELECT LLM('yes', f.title) AS title FROM reviews WHERE title = 'Yes')
= DuckDB's
SELECT f.id, (SELECT LLM('yes', text) AS text FROM reviews WHERE film <= f.id ORDER BY text, id LIMIT 1) FROM films f
= DuckDB's

-- a correlated subquery may have windows, lambdas, ORDER BY ALL and WITH, and make rows
SELECT id, u FROM films f, LATERAL (SELECT unnest(CASE WHEN LLM('up', f.title) > 'B' THEN [f.id, 0] ELSE [] END) AS u)
  ORDER BY id, u LIMIT 3
= [(3, 0), (3, 3), (6, 0)]
SELECT id, u, n FROM films f, LATERAL (SELECT unnest([LLM('up', f.title), f.genre]) AS u, 1 AS n)
= DuckDB's
SELECT f.id, n FROM films f LEFT JOIN LATERAL (SELECT count(*) OVER (ORDER BY r.id) AS n FROM reviews r
  WHERE r.film = f.id AND LLM('up', r.text) < 'T') ON true
= DuckDB's
:: SELECT f.id, {} FROM films f
(SELECT max(LLM('up', text)) OVER () FROM reviews WHERE film = f.id LIMIT 1)  = DuckDB's
(SELECT LLM('up', text) || rank() OVER (ORDER BY id DESC) FROM reviews WHERE film = f.id QUALIFY count(*) OVER () = 1)
= DuckDB's
(SELECT LLM('up', text) FROM reviews WHERE film = f.id ORDER BY ALL DESC LIMIT 1)  = DuckDB's
(SELECT max(list_transform([LLM('up', text)], lambda title: title || f.id || r.id)[1]) FROM reviews r WHERE film = f.id)
= DuckDB's
(WITH c AS (SELECT 2 AS two) SELECT max(LLM('up', text)) FROM reviews, c WHERE film = f.id AND f.id <= two)  = DuckDB's
EXISTS (FROM reviews WHERE film = f.id AND LLM('up', text) < 'Z' QUALIFY row_number() OVER (ORDER BY id) > 1)
= DuckDB's
'x' NOT IN (SELECT unnest(f.tags) FROM reviews WHERE film = f.id AND LLM('up', text) < 'H')  = DuckDB's

-- and may ask about its groups, and have queries with calls in FROM and WITH
SELECT f.id, x.* FROM films f LEFT JOIN LATERAL (SELECT LLM('up', min(text)) AS m, count(*) AS n FROM reviews
  WHERE film = f.id GROUP BY ALL) x ON true
= DuckDB's  # 3
:: SELECT f.id, {} FROM films f
(SELECT v.c FROM (SELECT LLM('up', f.title) AS c) v)  = DuckDB's  # 4
(SELECT LLM('up', count(*)) FROM reviews r WHERE r.film = f.id)  = DuckDB's  # 3
(SELECT LLM('up', max(r.text)) FROM reviews r WHERE r.film = f.id)  = DuckDB's  # 3
(SELECT LLM('up', f.genre, max(r.text)) FROM reviews r WHERE r.film < f.id HAVING count(*) > 1)  = DuckDB's  # 4
(SELECT LLM('up', g.genre) FROM films g WHERE g.id <= f.id GROUP BY g.genre ORDER BY max(g.id) DESC LIMIT 1)
= DuckDB's  # 3
(SELECT LLM('up', max(LLM('up', g.title))) FROM films g WHERE g.id < f.id AND LLM('up', g.title) < 'B')  = DuckDB's
(SELECT LLM('up', max(LLM('up', g.title))) FROM films g WHERE g.id < f.id)  = DuckDB's
(SELECT max(LLM('up', a, f.title)) FROM (SELECT LLM('up', title) AS a FROM films g WHERE g.id < f.id) WHERE a > 'AM')
= DuckDB's
(SELECT LLM('up', max(a)) FROM (SELECT LLM('up', title) AS a, id FROM films) x WHERE x.id < f.id AND LLM('up', a) > 'AM')
= DuckDB's
(SELECT max(LLM('up', x.m)) FROM (SELECT max(title) AS m FROM films g WHERE g.id < f.id) x)  = DuckDB's  # 3
(SELECT max(a) FROM (SELECT LLM('up', text) AS a FROM reviews WHERE film = f.id UNION ALL SELECT LLM('up', f.genre)))
= DuckDB's  # 7
(WITH x AS (SELECT LLM('up', text) AS a FROM reviews WHERE film = f.id), y AS (FROM x WHERE a > 'H')
  SELECT string_agg(a, ',' ORDER BY a) FROM y)  = DuckDB's  # 4
(WITH x AS (SELECT LLM('up', text) AS a FROM reviews WHERE film = f.id) SELECT count(*) FROM x, x AS y)  = DuckDB's  # 4
ARRAY(SELECT LLM('up', text) FROM reviews WHERE film = f.id ORDER BY id DESC)  = DuckDB's  # 4
len(ARRAY(SELECT 1 FROM reviews WHERE film = f.id AND LLM('up', text) < 'T'))  = DuckDB's  # 4
:: SELECT f.id FROM films f WHERE {}
LLM('up', title) NOT IN (SELECT LLM('up', g.title) FROM films g WHERE g.id > f.id AND g.id < 5)  = DuckDB's
LLM('up', title) <= ALL (SELECT g.title FROM films g WHERE g.id > f.id AND g.title IS NOT NULL)  = DuckDB's
EXISTS (SELECT LLM('up', count(*)) FROM films g WHERE g.id < f.id GROUP BY g.genre HAVING LLM('up', g.genre) > 'D')
= DuckDB's

-- its WITH may have calls and names of other tables, and may be recursive
:: SELECT f.id, {} FROM films f
(WITH films AS (SELECT 1) SELECT max(LLM('up', text)) FROM reviews, films WHERE film = f.id)  = DuckDB's  # 4
(WITH w AS (SELECT film, LLM('up', text) AS a FROM reviews) SELECT max(LLM('up', a, f.title)) FROM w WHERE film = f.id)
= DuckDB's  # 9
(WITH w(x, y) AS MATERIALIZED (SELECT film, text FROM reviews), v AS (SELECT x, LLM('up', y) AS a FROM w WHERE x < 5)
  SELECT LLM('up', min(v.a)) FROM v WHERE x = f.id)  = DuckDB's  # 5
(WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 3) SELECT max(LLM('up', f.genre, r.n)) FROM r
  WHERE n < f.id)  = DuckDB's  # 8
(WITH w AS (FROM reviews) SELECT LLM('up', text) FROM w WHERE film = f.id UNION ALL SELECT max(text) FROM w ORDER BY 1 LIMIT 1)
= DuckDB's
:: SELECT f.id FROM films f {}
WHERE EXISTS (WITH f AS (SELECT film AS g, LLM('up', text) AS a FROM reviews), w AS (FROM f WHERE g < 5)
  SELECT 1 FROM w WHERE g = id AND LLM('up', a, genre) > 'H')  = DuckDB's
, LATERAL (WITH w AS (SELECT film, LLM('up', text) AS a FROM reviews) SELECT LLM('yes', a, f.title) FROM w WHERE film = f.id)
= DuckDB's

-- and its tables may depend on the row
:: SELECT f.id, {} FROM films f
(SELECT max(LLM('up', t)) FROM unnest(f.tags) v(t))  = DuckDB's  # 4
(SELECT max(LLM('up', tags)) FROM unnest(tags) f(tags))  = DuckDB's  # 4
(SELECT LLM('up', string_agg(t, ',' ORDER BY t)) FROM unnest(f.tags) v(t))  = DuckDB's  # 3
ARRAY(SELECT LLM('up', unnest) || ordinality FROM unnest(f.tags) WITH ORDINALITY ORDER BY ALL DESC)  = DuckDB's  # 4
EXISTS (SELECT 1 FROM unnest(f.tags) v(t) WHERE LLM('yes', t, f.genre) = 'Yes')  = DuckDB's
f.genre < ALL (SELECT LLM('len', t) || t FROM unnest([t || 's' FOR t IN f.tags]) v(t))  = DuckDB's  # 4
(SELECT max(LLM('up', range)) FROM range(f.id // 2))  = DuckDB's  # 3
(SELECT max(LLM('up', n)) FROM generate_series(1, f.stars::INT) n(n))  = DuckDB's  # 4
(SELECT max(LLM('up', col0, col1)) FROM (VALUES (f.title, 1), (f.genre, 2)))  = DuckDB's  # 8
(SELECT max(LLM('up', key)) FROM json_each(to_json(f.info)))  = DuckDB's  # 2
(SELECT max(LLM('up', t, text)) FROM reviews r LEFT JOIN unnest(f.tags) v(t) ON r.film = f.id WHERE r.id < 13)  = DuckDB's
(SELECT max(LLM('up', n, t)) FROM unnest(f.tags) v(t), range(len(t) - 3) w(n))  = DuckDB's
(SELECT max(LLM('up', text)) FROM reviews, (SELECT f.id AS one) WHERE film = one)  = DuckDB's  # 4
(SELECT max(LLM('up', t)) FROM (SELECT t FROM unnest(f.tags) w(t) WHERE t > 'r' UNION ALL SELECT f.genre))  = DuckDB's
:: SELECT f.id, l.* FROM films f {}
, LATERAL (SELECT *, LLM('up', t) FROM unnest(f.tags) WITH ORDINALITY v(t, n)) l  = DuckDB's  # 4
LEFT JOIN LATERAL (SELECT v.*, LLM('up', f.genre, t) AS u FROM unnest(f.tags) v(t) ORDER BY t LIMIT 1) l ON u > 'E'
= DuckDB's

-- what cannot be rewritten is refused
SELECT (WITH c AS (SELECT f.id AS one) SELECT max(LLM('up', text)) FROM reviews, c WHERE film = one) FROM films f
! UnsupportedQueryError depend on a row, too  ? "call LLM on its rows" in str(error)
SELECT (WITH c AS (SELECT f.id AS one) SELECT max(LLM('up', text)) FROM reviews WHERE film = (FROM c)) FROM films f
! UnsupportedQueryError WITH that depends on a row  ? "call LLM on its rows" in str(error)
SELECT id FROM (SELECT *, random() AS r FROM films) f WHERE EXISTS (SELECT 1 FROM reviews WHERE film
  = f.id AND LLM('yes', text) = 'Yes')
! UnsupportedQueryError other rows whenever they are read  ? "call LLM on its rows" in str(error)
SELECT f.id FROM films f FULL JOIN reviews r ON LLM('yes', f.title, *) = 'Yes'
! UnsupportedQueryError Name the table  ? "call LLM on its rows" in str(error)
SELECT id FROM (SELECT id, LLM('up', id, seed := 1, seed := 2) AS a FROM films)
! QueryError sets seed twice

-- fields and errors are named as written
SELECT *, (SELECT max(text) FROM reviews WHERE film = f.id) FROM (SELECT id, LLM('up', title), title,
  info FROM films) f WHERE id = 1 AND EXISTS (SELECT 1 FROM reviews r WHERE r.film = f.id
  AND r.id = 10 AND LLM('yes', f.id, r.id, upper(f.title), f.info.year, r.text) = 'Yes')
< lambda query, fields: Answer(None, Finish.ERROR, "no answer")
~ PartialResultWarning .  = []
? columns[:3] == ["id", "llm('up', title)", "title"] and "_rq_" not in str(columns)
? dict(errors[-1].inputs) == {"f.id": "1", "r.id": "10", "upper_title": "ALIEN", "year": "1979",
  "text": "great"}

-- joins and filters around calls leave fewer to ask
@c SELECT film, text, LLM('up', text) AS a FROM reviews
SELECT a FROM ({c}) c JOIN films f ON c.film = f.id WHERE f.genre = 'comedy'
= DuckDB's  # 1
WITH c AS ({c}), g AS (SELECT id AS film, stars FROM films) SELECT a, stars FROM c JOIN g USING (film)
  WHERE stars < 3
= DuckDB's  # 1
WITH c AS ({c}) SELECT count(a) FROM c, films f WHERE c.film = f.id AND f.genre = 'drama' UNION ALL
  SELECT count(a) FROM c SEMI JOIN films f ON f.id = c.film AND f.title = 'Amelie'
= DuckDB's  # 2
SELECT a FROM ({c}) WHERE film IN (SELECT id FROM films WHERE genre = 'horror')
= DuckDB's  # 2
SELECT id FROM films WHERE id < 3 AND id IN (SELECT film FROM reviews WHERE LLM('yes', text) = 'Yes')
= DuckDB's  # 3
SELECT f.id FROM films f LEFT JOIN ({c}) d ON d.film = f.id WHERE genre = 'comedy' AND f.id IN (SELECT film FROM ({c}))
= DuckDB's  # 0
WITH c AS ({c}) SELECT * FROM films g WHERE g.id = 2 AND (g.title, g.id) IN (SELECT a, film FROM c)
= DuckDB's  # 5
SELECT a FROM ({c}) x WHERE NOT EXISTS (SELECT 1 FROM films u WHERE u.id = 2 AND u.id = film)
= DuckDB's  # 5
SELECT a FROM ({c}) x WHERE EXISTS (SELECT count(*) FROM films u WHERE u.id = 2 AND u.id = film)
= DuckDB's  # 5
SELECT f.id FROM films f LEFT JOIN reviews r ON f.id = r.film AND LLM('yes', f.title, r.text) = 'Yes'
  WHERE LLM('up', f.genre) = 'DRAMA'
= DuckDB's  # 4
SELECT f.id FROM films f ANTI JOIN reviews r ON f.id = r.film AND LLM('yes', f.title, r.text) = 'Yes'
  WHERE LLM('up', f.genre) = 'DRAMA'
= DuckDB's  # 4
SELECT id, LLM('up', text) AS a FROM reviews QUALIFY row_number() OVER (PARTITION BY film ORDER BY id)
  = 1 AND LLM('len', text) > 4
= DuckDB's  # 6
SELECT id, rank() OVER (ORDER BY id) AS r, LLM('up', text) AS a FROM reviews QUALIFY r < 3
= DuckDB's  # 2
SELECT *, sum(id) OVER (PARTITION BY film ORDER BY id) AS n, LLM('up', text) FROM reviews ORDER BY n DESC, id LIMIT 2 OFFSET 1
= DuckDB's  # 2
SELECT DISTINCT ON (film) film, unnest([id, film]) AS u, LLM('up', text) FROM reviews ORDER BY film, u
= DuckDB's  # 4
SELECT id, (SELECT max(LLM('up', text || f.title)) FROM reviews WHERE film = f.id) FROM films f
  WHERE LLM('up', f.genre) = 'DRAMA' ORDER BY 1
= DuckDB's  # 4
SELECT f.id, r.a FROM films f, LATERAL (SELECT LLM('up', text || f.title) AS a FROM reviews WHERE film = f.id) r
  WHERE LLM('up', f.genre) = 'DRAMA'
= DuckDB's  # 4
SELECT id FROM films f WHERE LLM('up', genre) = 'DRAMA' AND EXISTS (SELECT 1 FROM reviews
  WHERE film = f.id AND LLM('yes', title, text) = 'Yes')
= DuckDB's  # 4
SELECT * FROM (SELECT id, LLM('up', text) AS a, row_number() OVER (PARTITION BY film ORDER BY id) AS n FROM reviews) WHERE n = 1
= DuckDB's  # 4
WITH c AS (SELECT id, LLM('up', text) AS a, lag(text) OVER (ORDER BY id) AS b FROM reviews WHERE LLM('len', text) > 4)
  SELECT * FROM c WHERE b < 'h' AND id > 11 AND a <> b
= DuckDB's
WITH c AS (SELECT DISTINCT film, LLM('up', film) AS a, sum(film) OVER () AS n FROM reviews)
  SELECT a FROM c WHERE film < 2 AND n > 0 UNION ALL SELECT a FROM c WHERE n = film
= DuckDB's

-- a condition on a column is one on those that are equal to it
@d SELECT film, max(LLM('yes', text)) AS m FROM reviews GROUP BY film
WITH c AS ({c}), d AS (SELECT film, max(a) AS m FROM c GROUP BY film) SELECT * FROM d JOIN c ON d.film = c.film
  WHERE c.film = 2 AND d.film = 2
= DuckDB's  # 1
SELECT * FROM ({c}) x LEFT JOIN (SELECT id AS film, genre FROM films) USING (film) WHERE film = 2
= DuckDB's  # 1
SELECT * FROM ({d}) x LEFT JOIN ({c}) y USING (film) WHERE y.film IS NULL OR y.film = 2
= DuckDB's  # 10
SELECT * FROM ({c}) x FULL JOIN ({d}) y USING (film) WHERE film = 2
= DuckDB's  # 10
SELECT * FROM ({c}) x JOIN (SELECT film::DOUBLE AS film, LLM('yes', text) FROM reviews) y USING (film) WHERE y.film = 2
= DuckDB's  # 6
SELECT id, (SELECT max(LLM('up', text)) FROM reviews WHERE film = k) FROM (SELECT id, id AS k FROM films) LEFT JOIN
  (SELECT 2 AS k) g USING (k)
= DuckDB's  # 4

-- an outer join whose rows without a match are dropped is an inner one
SELECT film, a FROM ({d}) x FULL JOIN ({c}) y USING (film) WHERE x.film > 1
= DuckDB's
SELECT * EXCLUDE (a) FROM ({inner}) ORDER BY ALL
= DuckDB's  # 0
SELECT id FROM films f WHERE EXISTS (SELECT * FROM ({inner}) x WHERE x.id > f.id)
= DuckDB's  # 0
SELECT * FROM reviews r ANTI JOIN ({inner}) x ON r.film = x.id
= DuckDB's  # 0
SELECT id, (SELECT max(f.title) FROM films f WHERE f.id < x.id) FROM (SELECT id, LLM('up', title) AS title FROM films) x
= DuckDB's  # 0
SELECT id FROM (SELECT DISTINCT ON (genre) id, genre, LLM('up', title) AS title FROM films f ORDER BY genre, id, f.title)
= DuckDB's  # 0

-- beside rows that are not there nothing is asked
SELECT x.a, c.a FROM ({inner}) x LEFT JOIN ({c} LIMIT 0) c ON c.film = x.id
= DuckDB's  # 6
(SELECT LLM('up', title) FROM films LIMIT 0) UNION SELECT LLM('up', text) FROM reviews
= DuckDB's  # 5
SELECT count(*) AS n, max(LLM('up', title)) FROM films WHERE 1 = 0 INTERSECT SELECT id - id, LLM('up', title) FROM films
= DuckDB's  # 4
@most (SELECT max(LLM('up', text)) FROM reviews)
SELECT id FROM films WHERE id > 9 AND genre > {most} OR id > 10
= DuckDB's  # 5
SELECT {most}, count(*) FROM films WHERE id > 9
= DuckDB's  # 5
SELECT genre, {most} FROM films WHERE id > 9 GROUP BY ROLLUP (genre)
= DuckDB's  # 5
SELECT count(*), (SELECT max(a) FROM ({inner})) FROM films WHERE id > 9
= DuckDB's  # 6
SELECT x.a, r.id FROM ({inner}) x LEFT JOIN reviews r ON r.id > 19
= DuckDB's  # 6
SELECT * FROM (SELECT count(*) AS n, max(a) AS a FROM ({inner})) WHERE EXISTS (FROM reviews WHERE id > 19)
= DuckDB's  # 0
SELECT * FROM (SELECT genre, max(LLM('up', id)) FROM films GROUP BY ROLLUP (genre)) WHERE EXISTS (FROM reviews WHERE id > 19)
= DuckDB's  # 0
SELECT id FROM films WHERE LLM('up', title) NOT IN (SELECT text FROM reviews WHERE id > 19)
= DuckDB's  # 4

-- one match is enough
SELECT f.id FROM films f SEMI JOIN reviews r ON LLM('len', f.genre, r.text) > 3
= DuckDB's  # 3
SELECT f.id FROM films f WHERE NOT EXISTS (SELECT 1 FROM reviews r WHERE LLM('len', f.genre, r.text)
  > 3)
= DuckDB's  # 3
SELECT DISTINCT ON (genre) genre, id FROM films WHERE LLM('len', genre, id) > 3 ORDER BY genre, id
  DESC
= DuckDB's  # 3
SELECT f.id FROM films f SEMI JOIN reviews r ON f.id < r.film AND LLM('len', f.genre, r.text) > 3
= DuckDB's  # 5

-- equal calls of a statement are asked once, whatever they are for
SELECT LLM('len', id, title)::INT, LLM('len', title, id)::INT FROM films
= DuckDB's  # 6
SELECT id, LLM('yes', title, id) = 'Yes', u FROM (SELECT id, title, LLM('yes', id, title) = 'No' AS u FROM films) d
= DuckDB's  # 6
SELECT LLM('x', id, title, temperature := 0.7) = LLM('x', title, id, temperature := 0.7) FROM films  # 6
SELECT LLM('len', id, title)::INT, LLM('len', title, id)::INT FROM films  % order='original'  # 12
SELECT AI_FILTER('Late?', title), AI_SCORE('Late?', title) FROM films
< lambda query, fields: Answer("Yes", Finish.STOP, scores={"Yes": -0.1, "No": -2.4})
# 4
SELECT LLM('x', title, temperature := 0.7) FROM films INTERSECT
  SELECT LLM('x', title, temperature := 0.7) FROM films
# 4
SELECT (SELECT max(LLM('x', title, temperature := 0.7)) FROM films WHERE id < 4),
  (SELECT max(LLM('x', title, temperature := 0.7)) FROM films)
# 4

-- an outer limit stops calls in what is joined, united and searched
SELECT c.a, f.stars FROM ({c}) c JOIN films f ON c.film = f.id LIMIT 2
# 2  ? len(rows) == 2
WITH c AS ({c}) SELECT a FROM c, films f WHERE c.film = f.id AND f.id > 1 LIMIT 1 OFFSET 1
# 2  ? rows == [("LONG",)]
SELECT LLM('up', title) FROM films WHERE id < 3 UNION ALL SELECT LLM('up', text) FROM reviews LIMIT 4
# 4  ? len(rows) == 4
SELECT id FROM films f WHERE EXISTS (SELECT 1 FROM reviews r WHERE r.film = f.id AND LLM('len', f.id,
  r.text) > 0) LIMIT 1
# 1  ? len(rows) == 1
SELECT f.id FROM films f SEMI JOIN reviews r ON f.id < r.film AND LLM('len', f.id, r.text) > 0 LIMIT 2
# 2  ? len(rows) == 2
SELECT id FROM reviews WHERE upper(text) IN (SELECT LLM('up', text) FROM reviews) LIMIT 1
# 1  ? len(rows) == 1
SELECT id FROM films f WHERE NOT EXISTS (SELECT 1 FROM reviews r WHERE LLM('len', f.genre, r.text)
  < 3) LIMIT 1
# 15  ? len(rows) == 1
SELECT a FROM ({c}) c JOIN films f ON c.film = f.id ORDER BY a LIMIT 1
= [("GREAT",)]  # 4
SELECT max(a) FROM ({c}) c JOIN films f ON c.film = f.id LIMIT 1
= [("SWEET",)]  # 4
SELECT a, f.id FROM ({c}) c JOIN films f ON f.id < c.film ORDER BY film DESC, f.id LIMIT 2
= [("LOST", 1), ("LOST", 2)]  # 5
SELECT c.a FROM ({c}) c JOIN (SELECT id FROM films WHERE false) f ON c.film = f.id LIMIT 1
= []  # 0

-- answers at random are the same wherever a statement reads them
SELECT count(*) FROM (SELECT id FROM films WHERE LLM('x', title, temperature := 0.7) = 'Yes') a JOIN
  (SELECT id FROM films WHERE LLM('x', title, temperature := 0.7) = 'No') b USING (id)
< lambda query, fields, said=[0]: ["Yes", "No"][said.append(0) or len(said) % 2]
= [(0,)]  # 4

-- what joins leave out is not asked in other joins
@x (SELECT id, film, LLM('up', text) AS a FROM reviews) x
SELECT f.id, a, g.id FROM films f LEFT JOIN ({x} JOIN films g ON g.id = x.film) ON f.id = x.film WHERE g.stars IS NULL OR
  g.stars > 4.2
= DuckDB's
SELECT f.id, a, g.id FROM ({x} RIGHT JOIN films g ON x.film = g.id) FULL JOIN films f ON f.id = x.film WHERE
  coalesce(g.stars, 9) > 4.2
= DuckDB's
SELECT f.id, a, g.id FROM films f LEFT JOIN ({x} CROSS JOIN films g) ON f.id = x.film WHERE g.id IS NULL
= DuckDB's
SELECT c.a FROM films f LEFT JOIN (SELECT film AS id, LLM('up', text) AS a FROM reviews) c USING (id)
  WHERE id = 2
= DuckDB's  # 1
SELECT c.a FROM films f NATURAL JOIN (SELECT film AS id, LLM('up', text) AS a FROM reviews) c
  WHERE genre = 'comedy'
= DuckDB's  # 1
SELECT f.id FROM films f ANTI JOIN (SELECT film, LLM('up', text) AS a FROM reviews) c ON c.film = f.id
  AND c.a = 'SWEET' WHERE genre = 'comedy'
= DuckDB's  # 1
SELECT f.id, c.a FROM films f FULL JOIN (SELECT film, LLM('up', text) AS a FROM reviews) c ON c.film =
  f.id WHERE f.genre = 'comedy' OR f.id IS NULL
= DuckDB's  # 5
SELECT f.id FROM films f WHERE f.id NOT IN (SELECT film FROM reviews r WHERE LLM('len', f.title, text)
  > 3)
= DuckDB's  # 25

-- a PIVOT with GROUP BY reads no other columns
@p SELECT genre, seen, id, LLM('up', title) AS a FROM films
FROM (PIVOT ({p}) ON seen IN (true, false) USING max(a) GROUP BY genre)
= DuckDB's  # 4
FROM (PIVOT ({p}) AS s ON seen IN (true) USING count(DISTINCT s) GROUP BY genre)
= DuckDB's  # 4
FROM (PIVOT ({p}) ON seen IN (true, false) USING sum(id))
= DuckDB's  # 4

-- a star of a struct reads it
SELECT s.* FROM (SELECT {'t': LLM('up', title)} AS s FROM films WHERE id = 1)
= [("ALIEN",)]  # 1
