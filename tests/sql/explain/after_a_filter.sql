-- What comes after a filter, read through subqueries: rows that it drops may matter there. {good}
-- is a filter.

-- what comes after a filter
WITH g AS (SELECT * FROM films WHERE {good}) SELECT LLM('up', genre) FROM g
WITH g AS (SELECT * FROM films WHERE {good}), h AS (SELECT DISTINCT genre FROM g) SELECT LLM('up',
  genre) FROM h
SELECT LLM('up', n) FROM (SELECT count(*) AS n, genre FROM films WHERE {good} GROUP BY ALL)
SELECT LLM('up', g) FROM (SELECT DISTINCT genre AS g FROM films WHERE {good})
SELECT LLM('up', id) FROM films ANTI JOIN (SELECT id FROM films WHERE {good}) USING (id)
SELECT LLM('up', (SELECT id FROM films WHERE LLM('up', title) = 'DUNE')), id FROM films
SELECT LLM('Say hello') FROM films WHERE {good}
SELECT LLM('up', x) FROM (SELECT id FROM films WHERE {good}) AS g(x)
SELECT LLM('up', t), CASE WHEN t > 'B' THEN LLM('len', id) END FROM (SELECT id, LLM('up', title) AS
  t FROM films)
SELECT LLM('up', n) FROM (SELECT LLM('up', genre) AS g, count(*) AS n FROM films GROUP BY g)
SELECT LLM('up', n) FROM (SELECT unnest(tags) AS n, LLM('up', id) FROM films)
INSERT INTO reviews SELECT id, id, LLM('up', title) FROM films WHERE {good}

-- what comes after a filter (long)
WITH g AS (SELECT * FROM films WHERE {good}) SELECT LLM('up', genre) FROM g WHERE seen
WITH g AS (SELECT * FROM films WHERE {good}) SELECT LLM('up', genre) FROM g LIMIT 1
SELECT LLM('up', genre) FROM (SELECT * FROM films WHERE {good} ORDER BY id LIMIT 2)
SELECT LLM('up', id) FROM (SELECT * FROM films WHERE {good}) WHERE id % 2 = 1
SELECT LLM('up', n) FROM (SELECT count(*) AS n FROM films WHERE {good})
SELECT LLM('up', g) FROM (SELECT genre AS g FROM films WHERE {good} GROUP BY g HAVING count(*) < 2)
SELECT LLM('up', r) FROM (SELECT rank() OVER (ORDER BY id) AS r FROM films WHERE {good})
SELECT LLM('up', g.id) FROM films JOIN (SELECT * FROM films WHERE {good}) g USING (id)
SELECT LLM('up', id) FROM films WHERE id NOT IN (SELECT id FROM films WHERE {good})
SELECT LLM('up', id) FROM films WHERE id > (SELECT max(id) FROM films WHERE {good}) - 3
SELECT LLM('up', n) FROM (SELECT CAST(title[2:] AS INTEGER) AS n FROM (SELECT chr(107) || 1 AS title
  UNION SELECT genre FROM films) WHERE LLM('up', title) = 'K1')
SELECT LLM('up', id) FROM (SELECT id FROM films WHERE {good} UNION SELECT 9)
SELECT LLM('Say hello') FROM films f JOIN (SELECT id FROM films WHERE {good}) USING (id)
SELECT LLM('yes', title) FROM (SELECT title FROM films WHERE {good})
SELECT LLM('up', g) FROM (SELECT id, genre FROM films WHERE {good}) AS g
SELECT g.*, LLM('up', g.*) FROM (SELECT id, genre FROM films WHERE {good}) AS g
SELECT LLM('up', length(LLM('up', title))), LLM('len', LLM('up', title) || id) FROM films
SELECT LLM('up', LLM('len', id) + 1) FROM films WHERE LLM('len', LLM('up', genre)) > 5
SELECT LLM('up', n) FROM (SELECT genre, max(LLM('up', id)) AS n FROM films GROUP BY genre)
SELECT LLM('up', n) FROM (SELECT genre, count(*) AS n FROM films GROUP BY genre HAVING max(LLM('up',
  id)) > '3')
SELECT LLM('up', title) FROM films UNION ALL SELECT LLM('up', title) FROM films WHERE seen
CREATE TABLE best AS SELECT LLM('up', title) AS t FROM films WHERE {good}
