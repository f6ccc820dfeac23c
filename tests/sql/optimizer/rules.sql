-- A statement and what it becomes, by turns. Longer ones go on indented.

-- a rule rewrites once
SELECT * FROM (SELECT id, genre, LLM('up', title) AS a FROM films) WHERE id < 3 AND a = 'DUNE'
SELECT * FROM (SELECT id, genre, LLM('up', title) AS a FROM films WHERE id < 3 AND LLM('up', title)
  = 'DUNE')
SELECT p.a FROM films AS f LEFT JOIN (SELECT id, genre, LLM('up', title) AS a FROM films) AS p ON
  p.id > f.id AND p.id < 3
SELECT p.a FROM films AS f LEFT JOIN (SELECT id, genre, LLM('up', title) AS a FROM films WHERE id <
  3) AS p ON p.id > f.id
SELECT * FROM (SELECT id, genre, LLM('up', title) AS a FROM films) AS p(x, y, z) WHERE x < 3
SELECT * FROM (SELECT id, genre, LLM('up', title) AS a FROM films WHERE id < 3) AS p(x, y, z)
WITH c AS (SELECT id, genre, LLM('up', title) AS a FROM films) SELECT * FROM c WHERE id < 3
WITH c AS (SELECT id, genre, LLM('up', title) AS a FROM films WHERE id < 3) SELECT * FROM c
WITH c AS (SELECT id, genre, LLM('up', title) AS a FROM films) SELECT x.a, y.genre FROM c AS x, c AS
  y WHERE x.id = 1 AND y.id = 2
WITH c AS (SELECT id, genre, LLM('up', title) AS a FROM films WHERE id = 1 OR id = 2) SELECT x.a,
  y.genre FROM c AS x, c AS y WHERE x.id = 1 AND y.id = 2
SELECT * FROM (SELECT id, LLM('up', title) AS a FROM films UNION ALL SELECT id, text FROM reviews)
  WHERE id < 3
SELECT * FROM (SELECT id, LLM('up', title) AS a FROM films WHERE id < 3 UNION ALL SELECT id, text
  FROM reviews WHERE id < 3)
SELECT * FROM (SELECT genre, LLM('up', genre) AS a, COUNT(*) AS n FROM films GROUP BY genre) WHERE n
  > 1 AND genre > 'd'
SELECT * FROM (SELECT genre, LLM('up', genre) AS a, COUNT(*) AS n FROM films WHERE genre > 'd' GROUP
  BY genre HAVING COUNT(*) > 1)
SELECT * FROM (SELECT id, genre, LLM('up', title) AS a, RANK() OVER (PARTITION BY genre ORDER BY id)
  AS n FROM films) WHERE genre > 'd' AND id < 3
SELECT * FROM (SELECT id, genre, LLM('up', title) AS a, RANK() OVER (PARTITION BY genre ORDER BY id)
  AS n FROM films WHERE genre > 'd' QUALIFY id < 3)
SELECT * FROM (SELECT id, LLM('up', title) AS a, RANK() OVER (ORDER BY id) AS n FROM films) WHERE n < 3
SELECT * FROM (SELECT id, LLM('up', title) AS a, RANK() OVER (ORDER BY id) AS n FROM films QUALIFY
  RANK() OVER (ORDER BY id) < 3)
SELECT * FROM (SELECT id, title FROM films WHERE LLM('yes', title) = 'Yes') WHERE CAST(title AS INT)
  > 1
SELECT * FROM (SELECT id, title FROM films WHERE LLM('yes', title) = 'Yes' AND
  COALESCE(TRY(CAST(title AS INT) > 1), TRUE)) WHERE CAST(title AS INT) > 1
SELECT genre FROM (SELECT DISTINCT ON (genre) genre, LLM('up', title) AS a FROM films ORDER BY id)
SELECT genre FROM (SELECT DISTINCT ON (genre) genre, CAST(NULL AS VARCHAR) AS "a" FROM films ORDER
  BY id)
SELECT id FROM (SELECT id, genre, LLM('up', title) AS a FROM films)
SELECT id FROM (SELECT id, genre, CAST(NULL AS VARCHAR) AS "a" FROM films)
SELECT COUNT(*) FROM (SELECT MAX(LLM('up', title)) AS a FROM films)
SELECT COUNT(*) FROM (SELECT CAST(MIN(NULL) AS VARCHAR) AS "a" FROM films)
WITH c AS (SELECT id, genre, LLM('up', title) AS a FROM films) SELECT 1
SELECT 1
SELECT id FROM films WHERE EXISTS(SELECT LLM('up', text) FROM reviews)
SELECT id FROM films WHERE EXISTS(SELECT CAST(NULL AS VARCHAR) AS "llm('up', text)" FROM reviews)
SELECT a, id FROM (SELECT id, genre, LLM('up', title) AS a FROM films) LIMIT 3 OFFSET 2
SELECT a, id FROM (SELECT id, genre, LLM('up', title) AS a FROM films LIMIT 5) LIMIT 3 OFFSET 2
SELECT a FROM (SELECT id, genre, LLM('up', title) AS a FROM films) ORDER BY genre DESC, id LIMIT 2
SELECT a FROM (SELECT id, genre, LLM('up', title) AS a FROM films ORDER BY 2 DESC, 1 LIMIT 2) ORDER
  BY genre DESC, id LIMIT 2
SELECT LLM('up', title) FROM films UNION ALL SELECT text FROM reviews LIMIT 2
(SELECT LLM('up', title) FROM films LIMIT 2) UNION ALL SELECT text FROM reviews LIMIT 2
SELECT id FROM films WHERE EXISTS(SELECT 1 FROM films WHERE LLM('yes', title) = 'Yes')
SELECT id FROM films WHERE EXISTS(SELECT 1 FROM films WHERE LLM('yes', title) = 'Yes' LIMIT 1)

-- conditions about pairs become joins
SELECT a FROM (SELECT id, LLM('up', title) AS a FROM films) AS p JOIN reviews AS r ON p.id = r.film
  WHERE r.id < 12
SELECT a FROM (SELECT id, LLM('up', title) AS a FROM films WHERE id IN (SELECT r.film FROM reviews AS r
  WHERE r.id < 12)) AS p JOIN reviews AS r ON p.id = r.film WHERE r.id < 12

-- what would change the result is kept
SELECT genre FROM (SELECT DISTINCT ON (a) genre, LLM('up', title) AS a FROM films)
SELECT genre FROM (SELECT DISTINCT ON (2) genre, LLM('up', title) AS a FROM films)
SELECT genre FROM (SELECT DISTINCT ON (genre) genre, LLM('up', title) AS a FROM films ORDER BY a)
SELECT genre FROM (SELECT DISTINCT genre, LLM('up', title) AS a FROM films)
SELECT * FROM (SELECT id, genre, LLM('up', title) AS a FROM films LIMIT 4) WHERE id < 3
SELECT * FROM (SELECT DISTINCT ON (genre) id, LLM('up', title) AS a FROM films) WHERE id < 3
SELECT * FROM (SELECT id, LLM('up', title) AS a, RANK() OVER (ORDER BY LLM('up', title)) AS n FROM films)
  WHERE n < 3
SELECT * FROM (SELECT DISTINCT ON (genre) id, genre, LLM('up', title) AS a, RANK() OVER (ORDER BY id) AS n
  FROM films ORDER BY id) WHERE n < 3 AND id < 3
SELECT * FROM (SELECT id, LLM('up', title) AS a, RANDOM() AS r FROM films) WHERE id < 3
SELECT * FROM (SELECT id, genre, LLM('up', title) AS a FROM films) WHERE id < 3 * RANDOM()
SELECT * FROM (SELECT UNNEST(tags) AS tag, LLM('up', title) AS a FROM films) WHERE tag > 'b'
SELECT * FROM films AS f LEFT JOIN (SELECT id, genre, LLM('up', title) AS a FROM films) AS p ON p.id
  > f.id WHERE p.id IS NULL
SELECT * FROM (SELECT id, genre, LLM('up', title) AS a FROM films) AS p LEFT JOIN films AS f ON p.id
  = f.id AND p.id < 3
SELECT * FROM (SELECT id, genre, LLM('up', title) AS a FROM films) AS p WHERE id IN (SELECT film
  FROM reviews ORDER BY random() LIMIT 1)
WITH c AS MATERIALIZED (SELECT id, genre, LLM('up', title) AS a FROM films) SELECT * FROM c WHERE id
  < 3
WITH c AS (SELECT id, genre, LLM('up', title) AS a FROM films) SELECT x.a FROM c AS x, c AS y WHERE
  x.id = 1
SELECT * FROM (SELECT MAX(id) AS id, MAX(LLM('up', title)) AS a FROM films) WHERE id < 3
SELECT * FROM (SELECT genre, LLM('up', genre) AS a FROM films GROUP BY ROLLUP (genre)) WHERE genre
  IS NULL
SELECT * FROM (SELECT id, LLM('up', title) AS a FROM films UNION ALL SELECT LENGTH(text), text FROM
  reviews) WHERE id < 3
SELECT DISTINCT genre FROM (SELECT DISTINCT genre, LLM('up', title) AS a FROM films)
SELECT p FROM (SELECT id, genre, LLM('up', title) AS a FROM films) AS p
SELECT 1 FROM (SELECT id, genre, LLM('up', title) AS a FROM films) AS p NATURAL LEFT JOIN films AS f
SELECT 1 FROM (SELECT genre, LLM('up', title) AS a FROM films UNION SELECT genre, title FROM films)
SELECT DISTINCT a FROM (SELECT id, genre, LLM('up', title) AS a FROM films) LIMIT 3
SELECT a, RANK() OVER (ORDER BY id) FROM (SELECT id, genre, LLM('up', title) AS a FROM films) LIMIT
  3
SELECT a FROM (SELECT id, genre, LLM('up', title) AS a FROM films) ORDER BY id + 1 LIMIT 3
SELECT a FROM (SELECT id, genre, LLM('up', title) AS a FROM films) LIMIT 10 PERCENT
SELECT LLM('up', title) FROM films UNION SELECT text FROM reviews LIMIT 2
