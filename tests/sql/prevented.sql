-- As queries.sql.

-- what must fail fails before the first call
SELECT CAST(title AS INTEGER), LLM('up', title) FROM films
SELECT genre::INTEGER, max(LLM('up', title)) FROM films GROUP BY genre
INSERT INTO reviews (film, text) SELECT title, LLM('up', title) FROM films
INSERT INTO strict SELECT id, LLM('up', title), 5 FROM films
INSERT INTO strict SELECT id + 10, LLM('up', title), id FROM films
CREATE TABLE n AS SELECT CAST(title AS INTEGER) AS t, LLM('up', title) AS u FROM films
SELECT f.title FROM films f JOIN reviews r ON LLM('up', r.text) = 'A' RIGHT JOIN films g ON g.id =
  f.nope
SELECT LLM('up', title).year FROM films
SELECT LLM('up', title) FROM films ORDER BY (SELECT id FROM reviews)
SELECT u, title::INTEGER FROM (SELECT *, LLM('up', title) AS u FROM films)
WITH a AS (SELECT id, LLM('up', title) AS u FROM films), b AS (SELECT id, title::DATE AS d FROM
  films) SELECT * FROM a, b WHERE a.id = b.id
SELECT max(u), max(title::INTEGER) FROM (SELECT *, LLM('up', title) AS u FROM films)
SELECT LLM('up', title) FROM films UNION ALL SELECT title::INTEGER::VARCHAR FROM films
SELECT id FROM films QUALIFY rank() OVER (ORDER BY title::INTEGER) > 0 AND LLM('up', id) <> '0'
SELECT DISTINCT rank() OVER w FROM films WINDOW w AS (ORDER BY title::INTEGER) QUALIFY LLM('up',
  id) = 'none' ORDER BY LLM('up', title) LIMIT 1
SELECT u, list_transform(tags, lambda u: error('no')) FROM (SELECT *, LLM('up', id) AS u FROM
  films)
SELECT (SELECT r.id FROM reviews r WHERE r.film <> f.id)::VARCHAR || u FROM (SELECT id, LLM('up',
  title) AS u FROM films) f
SELECT (SELECT g.title::INTEGER FROM films g WHERE g.id = f.id) || u FROM (SELECT id, LLM('up',
  title) AS u FROM films) f

-- what must fail fails before the first call (long)
SELECT LLM('up', title), LLM('up', CAST(title AS INTEGER)) FROM films
SELECT LLM('up', t) FROM (SELECT LLM('up', title) AS t, title::DATE AS d FROM films)
INSERT INTO reviews SELECT id, title, LLM('up', title) FROM films
INSERT INTO strict SELECT stars, LLM('up', title), 5 FROM films
INSERT INTO strict BY NAME SELECT film AS id, LLM('up', text) AS text FROM reviews
SELECT LLM('up', title) FROM films GROUP BY genre
SELECT LLM('up', title), (SELECT id FROM reviews) FROM films
SELECT (length(LLM('up')) + 1).year FROM films
SELECT LLM('up', title), error('no') FROM films
WITH a AS (SELECT *, LLM('up', title) AS u FROM films) SELECT max(f.u || '!'),
  max(f.title::INTEGER) FROM a AS f GROUP BY f.id
SELECT u, d FROM (SELECT id, LLM('up', title) AS u FROM films) JOIN (SELECT id, title::DATE AS d
  FROM films) USING (id)
SELECT u, (SELECT r.id FROM reviews r WHERE r.film <> f.id) FROM (SELECT id, LLM('up', title) AS u
  FROM films) f ORDER BY u
SELECT u FROM (SELECT LLM('up', title) AS u FROM films) WHERE u > 'A' UNION SELECT
  title::INTEGER::VARCHAR FROM films
CREATE TABLE n AS SELECT u, title::INTEGER AS t FROM (SELECT *, LLM('up', title) AS u FROM films)
SELECT max(LLM('up', title)), rank() OVER (ORDER BY max(genre)::INTEGER) FROM films GROUP BY id
  QUALIFY max(LLM('up', id)) = 'none'
SELECT u, [error('no') FOR u IN tags] FROM (SELECT *, LLM('up', id) AS u FROM films)

-- what an answer may prevent does not fail beforehand
SELECT CASE WHEN LLM('yes', title) IN ('Yes', 'No') THEN 1 ELSE title::INTEGER END FROM films
SELECT id FROM films WHERE id = (SELECT id FROM films WHERE LLM('up', title) = 'DUNE')
SELECT coalesce(u, title::INTEGER::VARCHAR) FROM (SELECT *, LLM('up', id) AS u FROM films) AS f 
SELECT CASE WHEN u = '' THEN (SELECT g.id FROM films g WHERE g.id = f.id) END FROM (SELECT *,
  LLM('up', id) AS u FROM films) AS f 
SELECT title::INTEGER FROM (SELECT *, LLM('up', id) AS u FROM films) AS f WHERE u = 'Maybe'
SELECT title::INTEGER FROM (SELECT *, LLM('up', id) AS u FROM films) AS f JOIN (SELECT 'Maybe' AS
  u) AS g USING (u)
SELECT u || y AS v, CASE WHEN count(*) = 6 THEN error('all') END FROM (SELECT *, LLM('up', id) AS
  u FROM films) AS f , (VALUES ('a')) AS w(y) GROUP BY 1
SELECT title::INTEGER FROM films QUALIFY count(*) OVER () > 0 AND LLM('up', id) = 'none' 
SELECT rank() OVER (ORDER BY title::INTEGER) FROM films QUALIFY true AND LLM('up', id) = 'none'
  LIMIT 0
SELECT rank() OVER (PARTITION BY LLM('up', title) ORDER BY title) FROM films QUALIFY true AND
  LLM('up', id) = 'none' 
SELECT u FROM (SELECT LLM('yes', id) AS u FROM films) UNION ALL (SELECT u FROM (SELECT LLM('up',
  id) AS u, title FROM films) WHERE u IN ('7', '8') AND title::INTEGER > 0)

-- what an answer may prevent does not fail beforehand (long)
SELECT title::INTEGER FROM films WHERE LLM('yes', title) = 'none'
SELECT LLM('up', title::INTEGER) FROM films WHERE LLM('up', title) = 'none'
SELECT CASE WHEN f IS NULL OR f.u IS NULL THEN error('none') END FROM (SELECT *, LLM('up', id) AS
  u FROM films) AS f 
SELECT f.title::INTEGER FROM (SELECT *, LLM('up', id) AS u FROM films) AS f JOIN films g ON u =
  g.title
SELECT title::INTEGER FROM (SELECT *, LLM('up', id) AS u FROM films) AS f NATURAL JOIN (SELECT
  'Maybe' AS u) AS g
SELECT CASE WHEN y IS NULL THEN error('none') END FROM (SELECT *, LLM('up', id) AS u FROM films)
  AS f , LATERAL (SELECT u AS y) AS w
SELECT list_transform(tags, lambda v: CASE WHEN u IS NULL THEN error('none') END) FROM (SELECT *,
  LLM('up', id) AS u FROM films) AS f 
SELECT rank() OVER (PARTITION BY id ORDER BY title::INTEGER) FROM films QUALIFY id > 6 AND
  LLM('up', id) = 'none' 
SELECT id AS i, rank() OVER (ORDER BY i) FROM films QUALIFY true AND LLM('up', id) = 'none' 
SELECT DATE '2020-01-01' AS d UNION ALL SELECT max(u) FROM (SELECT DATE '2020-01-02' + LLM('len',
  id)::INTEGER AS u FROM films)
SELECT v, (SELECT m FROM (SELECT max(u) AS m FROM (SELECT LLM('yes', id) AS u FROM films))) FROM
  (SELECT LLM('up', id) AS v FROM films)
