-- As queries.sql.

-- joins after one with a call
SELECT f.id, r.id, g.id FROM films f JOIN reviews r ON f.id = r.film AND LLM('yes', r.text) = 'No'
  RIGHT JOIN films g ON g.id = f.id
SELECT f.id, r.id, g.id FROM films f JOIN reviews r ON f.id = r.film AND LLM('yes', r.text) = 'No'
  INNER JOIN films g ON g.id = f.id
SELECT genre, x, LLM('up', text) FROM films f JOIN reviews r ON f.id = r.film AND LLM('yes',
  r.text) = 'No' RIGHT JOIN (SELECT film AS x, text AS y FROM reviews) c ON c.x = f.id WHERE
  LLM('yes', y) = 'No'
SELECT f.id, r.id, g.id FROM films f LEFT JOIN films g ON g.id = f.id + 1 JOIN reviews r ON f.id =
  r.film AND LLM('yes', r.text) = 'No' RIGHT JOIN films h ON h.id = f.id
SELECT key, text, lang FROM (SELECT id AS key, info.lang AS lang FROM films) f JOIN reviews r ON
  f.key = r.film AND LLM('yes', r.text) = 'No' RIGHT JOIN (SELECT id AS key FROM films) c USING
  (key)
SELECT count(*), count(f.id), max(LLM('up', r.text)) FROM films f JOIN reviews r ON f.id = r.film
  AND LLM('yes', r.text) = 'No' RIGHT JOIN films g ON g.id = f.id GROUP BY g.genre

-- joins after one with a call (long)
SELECT f.id, r.id, g.id FROM films f JOIN reviews r ON f.id = r.film AND LLM('yes', r.text) = 'No'
  FULL JOIN films g ON g.id = f.id
SELECT f.id, r.id, g.id FROM films f JOIN reviews r ON f.id = r.film AND LLM('yes', r.text) = 'No'
  LEFT JOIN films g ON g.id = f.id
SELECT * FROM films f JOIN reviews r ON f.id = r.film AND LLM('yes', r.text) = 'No' RIGHT JOIN
  (SELECT id AS x FROM films) c ON c.x = f.id
SELECT text, x, f.title FROM films f JOIN reviews r ON f.id = r.film AND LLM('up', r.text,
  f.title) <> 'LONG|DUNE' FULL JOIN (SELECT id AS x FROM films) c ON c.x = film
SELECT a.id, b.id, c.id FROM reviews a, films b JOIN reviews c ON b.id = c.film AND LLM('yes',
  c.text) = 'No' RIGHT JOIN films d ON d.id = b.id
SELECT f.id, text FROM films f JOIN reviews r ON f.id = r.film AND LLM('yes', r.text) = 'No',
  (SELECT 1 AS one) RIGHT JOIN (SELECT 1 AS two) ON one = two
SELECT f.id, r.text, g.id FROM films f JOIN reviews r ON f.id = r.film AND LLM('up', r.text) =
  'SWEET' POSITIONAL JOIN films g
SELECT * FROM films f JOIN films g USING (id) WHERE LLM('yes', f.title) = 'Yes'
SELECT * EXCLUDE (f.title, g.GENRE, tags) FROM films f JOIN films g ON f.id = g.id + 1 WHERE LLM('yes', g.title) = 'Yes'
SELECT * EXCLUDE (stars), COLUMNS('tags|seen') FROM films h, (SELECT id + 1 AS id, title, seen, tags
  FROM films) f FULL JOIN films g USING (id) WHERE LLM('yes', g.title) = 'Yes' AND h.id = g.id

-- calls in what PIVOT and UNPIVOT read
PIVOT (SELECT id, genre, LLM('up', title) AS u FROM films) ON genre IN ('drama', 'horror') USING max(u) GROUP BY id
UNPIVOT (SELECT id, LLM('up', title) AS loud, genre FROM films) ON loud, genre INTO NAME kind VALUE word
SELECT LLM('up', value) FROM (UNPIVOT (SELECT id, title, genre FROM films) ON COLUMNS(* EXCLUDE (id)))


-- calls about windows and about rows that a function makes
SELECT id, LLM('up', lag(title) OVER (ORDER BY id), title) AS z FROM films WHERE LLM('yes', genre) = 'Yes' ORDER BY z
SELECT id, rank() OVER (ORDER BY stars) FROM films QUALIFY LLM('up', lag(title) OVER (ORDER BY id)) = 'ALIEN'
  ORDER BY LLM('up', lead(title) OVER (ORDER BY id)) LIMIT 1
SELECT genre, LLM('up', rank() OVER (ORDER BY count(*), genre)) FROM films GROUP BY genre
SELECT *, LLM('up', max(title) OVER (PARTITION BY genre), info.year) FROM films f ORDER BY f.id
SELECT max(LLM('up', title)) OVER (), LLM('up', max(LLM('up', title)) OVER (ORDER BY id)) FROM films
SELECT id, LLM('up', sum(stars) OVER w) FROM films WINDOW w AS (PARTITION BY LLM('up', genre) ORDER BY id)
SELECT DISTINCT ON (genre) genre, LLM('up', lag(title) OVER (ORDER BY id)) FROM films ORDER BY genre, id
SELECT id AS title, LLM('up', lag(title) OVER (ORDER BY films.id)) FROM films ORDER BY title DESC
SELECT f.id, (SELECT LLM('up', lag(r.text) OVER (ORDER BY r.id), f.title) FROM reviews r WHERE r.film <= f.id
  ORDER BY r.id DESC LIMIT 1) FROM films f
SELECT id FROM films f WHERE EXISTS (SELECT 1 FROM reviews r WHERE r.film <= f.id
  QUALIFY LLM('up', lag(r.text) OVER (ORDER BY r.id)) = 'SCARY')
SELECT id, unnest(tags), LLM('up', title, unnest(tags)) FROM films
SELECT id, LLM('up', unnest(tags)) || generate_subscripts(tags, 1), unnest(range(2)) FROM films WHERE LLM('up', title) > 'AM'
SELECT id, unnest(info), LLM('up', row_number() OVER (ORDER BY id), unnest(tags)) FROM films ORDER BY id LIMIT 2
SELECT genre, LLM('up', unnest(list(title ORDER BY id))) FROM films GROUP BY genre
SELECT id, m, ARRAY(SELECT LLM('up', unnest(f.tags))) FROM films f, LATERAL (SELECT LLM('up', unnest(f.tags)) AS m)

-- keys of a window are text, whatever it computes
SELECT id, sum(stars) OVER (PARTITION BY LLM('up', genre) ORDER BY LLM('up', title)) FROM films
SELECT id, sum(LLM('len', title)) OVER (PARTITION BY LLM('up', genre)) FROM films

-- groups
SELECT genre, LLM('up', sum(id)), genre IN (SELECT genre FROM films WHERE id = 3) FROM films GROUP
  BY genre
SELECT genre, LLM('up', sum(id)) IN (SELECT '9'), LLM('up', min(id)) = ANY (SELECT '1') FROM films
  GROUP BY genre
SELECT genre, max(LLM('up', id)), (SELECT count(*) FROM reviews r WHERE r.text > f.genre) FROM
  films f GROUP BY ROLLUP (genre)
SELECT genre, CASE WHEN genre IS NULL THEN max(LLM('up', id)) END FROM films GROUP BY ROLLUP
  (genre)
SELECT count(*), LLM('up', 1) FROM films WHERE id > 9
SELECT 3 AS g, 3 + id, genre, count(*), grouping(g), sum(3) FROM films WHERE LLM('yes', title) =
  'Yes' GROUP BY CUBE (genre, g, id) HAVING g IS NULL OR id = 2
SELECT 'x', max(LLM('up', title)), (SELECT 'x'), 'x' || 'y' FROM films GROUP BY ROLLUP (1)
SELECT genre, LLM('up', genre) || LLM('up', min(id)) FROM films GROUP BY genre ORDER BY LLM('up',
  max(id))
SELECT info.year, LLM('up', count(*)) FROM films GROUP BY info
SELECT genre, row_number() OVER (ORDER BY LLM('up', genre)), sum(count(*)) OVER () FROM films
  GROUP BY genre
SELECT string_agg(LLM('up', title), ',' ORDER BY id), list(LLM('up', id) ORDER BY id DESC),
  first(LLM('up', id) ORDER BY id), any_value(LLM('up', title) ORDER BY id) FROM films
SELECT genre, count(*) FILTER (WHERE LLM('yes', title) = 'Yes') FROM films GROUP BY genre
SELECT (SELECT max(r.id) FROM reviews r WHERE r.film = f.id) + 1 AS k, max(LLM('up', title)) FROM
  films f GROUP BY k

-- groups (long)
SELECT genre, LLM('up', sum(id)), (SELECT count(*) FROM (VALUES (7)) z(z)) FROM films GROUP BY
  genre
SELECT genre, LLM('up', sum(id)), EXISTS (SELECT 1 FROM films WHERE genre = 'drama') FROM films
  GROUP BY genre
SELECT genre, LLM('up', sum(id)), (SELECT sum(id) FROM films) FROM films GROUP BY genre
SELECT genre, max(LLM('up', id)), (SELECT count(*) FROM reviews r WHERE r.text > f.genre) FROM
  films f GROUP BY genre
SELECT genre, LLM('up', genre), count(*) FROM films GROUP BY ROLLUP (genre)
SELECT LLM('up', genre), grouping_id(genre, seen) FROM films GROUP BY GROUPING SETS ((genre),
  (seen), (genre, seen), ())
SELECT LLM('yes', title) AS y, count(*) FROM films GROUP BY ROLLUP (y)
SELECT genre, count(*) FROM films GROUP BY ROLLUP (genre) HAVING LLM('yes', genre) = 'Yes'
SELECT count(*), LLM('up', count(*)) FROM empty
SELECT LLM('up', LLM('yes', title)), count(*) FROM films GROUP BY LLM('up', LLM('yes', title))
SELECT LLM('up', LLM('yes', genre)), count(*) FROM films GROUP BY genre
SELECT upper(genre) AS g, LLM('up', sum(id)) FROM films GROUP BY g ORDER BY g
SELECT upper(genre) AS g, LLM('up', sum(id)) FROM films GROUP BY upper(films.GENRE) ORDER BY
  upper(genre)
SELECT info.year, LLM('up', count(*)) FROM films GROUP BY info.year
SELECT title = 'a', LLM('up', count(*)) FROM films GROUP BY title = 'a', title = 'A'
SELECT seen, LLM('up', genre) FROM films GROUP BY (genre, seen)
SELECT genre, string_agg(title, ',' ORDER BY LLM('up', title), id) FROM films GROUP BY genre
SELECT 2 * ((SELECT max(r.id) FROM reviews r WHERE r.film = f.id) + 1) AS k, count(*) FROM films f
  WHERE LLM('up', title) > 'B' GROUP BY (SELECT max(r.id) FROM reviews r WHERE r.film = f.id) + 1
SELECT grouping_id(y, seen), LLM('yes', title) AS y, seen, count(*) FROM films GROUP BY CUBE (y,
  seen) HAVING grouping(y) = 0
SELECT genre, LLM('up', sum(id)), (SELECT sum(id) FROM films i WHERE i.genre = films.genre) FROM
  films GROUP BY genre
SELECT genre, max(LLM('up', id)), EXISTS (FROM reviews r WHERE r.text > genre), 'x' || genre = ANY
  (SELECT 'x' || i.genre FROM films i WHERE i.genre <> films.genre) FROM films GROUP BY genre
SELECT genre, LLM('up', genre, seen), grouping(genre), count(*) FROM films GROUP BY CUBE (genre,
  seen)
SELECT genre, LLM('up', genre) FROM films GROUP BY ROLLUP (1)
SELECT -3 AS g, 3, LLM('up', g), row_number() OVER (ORDER BY -3) FROM films GROUP BY ROLLUP (g)
SELECT coalesce(3, 3) AS g, 3, max(LLM('up', title)) FROM films GROUP BY ROLLUP (g) ORDER BY 1
SELECT LLM('yes', title), LLM('up', string_agg(id::VARCHAR, ',' ORDER BY id)) FROM films GROUP BY
  LLM('yes', title)
SELECT mode() WITHIN GROUP (ORDER BY LLM('up', title)), percentile_disc(0.5) WITHIN GROUP (ORDER
  BY LLM('len', title)) FROM films

-- macros
SELECT total(LLM('up', id)), LLM('up', cnt(id)) FROM films
SELECT each([id, id]), LLM('up', id) FROM films LIMIT 3
SELECT geomean(LLM('len', genre)), weighted_avg(LLM('len', title), id) FROM films
SELECT half(LLM('len', title)), half(LLM('len', title), 4), LLM('up', half(id)) FROM films

-- macros (long)
SELECT cnt(LLM('up', id)) FROM films LIMIT 1
SELECT genre, cnt(id), LLM('up', genre) FROM films GROUP BY genre
SELECT generate_subscripts([id, id], 1), LLM('up', id) FROM films ORDER BY id LIMIT 1
SELECT id FROM films WHERE loud(LLM('up', title)) = 'DUNE!'
SELECT newest(id), LLM('up', id) FROM films ORDER BY 1 LIMIT 1
SELECT loud(LLM('up', title)), LLM('up', loud(text := genre)) FROM films

-- names
SELECT LLM('up', [t || id FOR t IN tags][1]), LLM('up', list_filter(tags, lambda id: id > 'a')[1])
  FROM films
SELECT list_transform([LLM('up', id)], lambda x: x || genre) FROM films
SELECT id AS text, (SELECT max(text) FROM reviews), LLM('up', genre) FROM films
WITH llm(a) AS (SELECT 1) SELECT a, LLM('up', a), llm.a FROM llm
SELECT DISTINCT ON (genre) LLM('up', genre) FROM films ORDER BY genre, id
SELECT (LLM('up', title) || genre).lower(), LLM('up', genre, title).lower() FROM films

-- names (long)
SELECT id AS x, [x + 10 FOR x IN [1, 2]], LLM('up', genre) FROM films
SELECT id AS x, list_transform([1, 2], lambda x: x + 10), LLM('up', genre) FROM films
WITH llm AS (SELECT 1 AS a), b(c) AS MATERIALIZED (SELECT 2) SELECT LLM('up', a, c) FROM llm, b
SELECT llm.a, LLM('up', llm.b) FROM (VALUES (1, 'x')) AS llm(a, b)
SELECT LLM('up', title) FROM films;;
SELECT LLM('up', title) AS x, x.lower().upper() FROM films
SELECT id AS x, [x + id FOR x, i IN [1, x] IF i > 0], LLM('up', x) FROM films
SELECT LLM('up', title) FROM films; -- done

SELECT COLUMNS('(id|genre)') AS 'x_\1', LLM('up', title) FROM films
SELECT ARRAY(SELECT LLM('up', title) FROM films ORDER BY ALL DESC), ARRAY(SELECT LLM('up', g.title) FROM films g
  WHERE g.genre = f.genre ORDER BY ALL) FROM films f

-- DISTINCT ON
SELECT DISTINCT ON (u || '!', seen) LLM('up', genre) AS u, id FROM films ORDER BY u, id

-- DISTINCT ON (long)
SELECT DISTINCT ON (u) LLM('up', genre) AS u, id FROM films ORDER BY u, id
SELECT DISTINCT ON (genre) length(genre) AS genre, LLM('up', genre) FROM films ORDER BY genre

-- fields that are read where no branch prevents it
SELECT CASE WHEN peeked(id) > 4 THEN LLM('up', genre) END FROM films
SELECT CASE WHEN s > '9' THEN 'no' WHEN s < '13' THEN LLM('up', s::INT + 1) END FROM (VALUES
  ('12'), ('a')) v(s)
SELECT CASE WHEN s < '9' THEN CASE WHEN CAST(s AS INT) = 12 THEN LLM('up', 0) END END FROM (VALUES
  ('12'), ('a')) v(s)
SELECT CASE WHEN len(l) = 1 THEN LLM('up', [x::INT FOR x IN l]) END FROM (VALUES (['1']), (['a',
  'b'])) v(l)

-- fields that are read where no branch prevents it (long)
SELECT coalesce(peek(id), LLM('up', genre)) FROM films
SELECT CASE WHEN s = '12' THEN LLM('up', CAST(s AS INT)) END FROM (VALUES ('12'), ('a')) v(s)

-- arguments of macros mean what they mean outside of them
SELECT id, twice_up(id + 0), added(id) FROM films WHERE twice_up(films.id) > '2' ORDER BY added(id) DESC

-- a name of the select list that is a column, too
SELECT -id AS id, sum(id) OVER (PARTITION BY genre ORDER BY id) FROM films WHERE LLM('yes', title) =
  'No'
SELECT 7 AS id, first(title ORDER BY id DESC), arg_max(title, id) FROM films WHERE LLM('yes', title)
  = 'No'
SELECT 7 AS id, title FROM films WHERE LLM('yes', title) = 'No' ORDER BY row_number() OVER (ORDER BY
  id DESC)
SELECT max(LLM('up', id)) OVER (PARTITION BY genre ORDER BY id), id FROM films WHERE LLM('yes',
  title) = 'No'
SELECT LLM('up', genre) AS genre, count(*) FROM films WHERE LLM('yes', title) = 'No' GROUP BY ALL
  HAVING genre <> 'COMEDY'
SELECT 7 AS id, max(LLM('up', id)) FROM films WHERE LLM('yes', title) = 'No' GROUP BY films.id
  HAVING id < 5
SELECT -id AS id, LLM('up', count(*)) FROM films WHERE LLM('yes', title) = 'No' GROUP BY id ORDER BY
  id
SELECT films.genre, LLM('up', id) AS genre FROM films WHERE LLM('yes', title) = 'No' ORDER BY genre
  DESC

-- a name of the select list that is a column, too (long)
SELECT -id AS id, row_number() OVER (ORDER BY id) FROM films WHERE LLM('yes', title) = 'Yes'
SELECT -id AS id, row_number() OVER (ORDER BY id) + id FROM films WHERE LLM('yes', title) = 'Yes'
  ORDER BY id
SELECT -id AS id, sum(id) OVER (PARTITION BY genre ORDER BY id) FROM films WHERE LLM('yes', title) =
  'Yes'
SELECT 7 AS id, array_agg(title ORDER BY id DESC) FROM films WHERE LLM('yes', title) = 'Yes'
SELECT max(-id) AS id, list(title ORDER BY id) FROM films WHERE LLM('yes', title) = 'Yes'
SELECT 7 AS id, first(title ORDER BY id DESC), arg_max(title, id) FROM films WHERE LLM('yes', title)
  = 'Yes'
SELECT 7 AS id, rank() OVER w FROM films WHERE LLM('yes', title) = 'Yes' WINDOW w AS (ORDER BY id)
SELECT 7 AS id, title FROM films WHERE LLM('yes', title) = 'Yes' QUALIFY row_number() OVER
  (PARTITION BY genre ORDER BY id DESC) = 1
SELECT 7 AS id, title FROM films WHERE LLM('yes', title) = 'Yes' ORDER BY row_number() OVER (ORDER
  BY id DESC)
SELECT count(*) AS id, string_agg(title, ',' ORDER BY id, title) FROM films WHERE LLM('yes', title)
  = 'Yes' GROUP BY genre
SELECT mode() WITHIN GROUP (ORDER BY -id) AS id, mode() WITHIN GROUP (ORDER BY id) FROM films WHERE
  LLM('yes', title) = 'Yes'
SELECT max(LLM('up', id)) OVER (PARTITION BY genre ORDER BY id), id FROM films WHERE LLM('yes',
  title) = 'Yes'
SELECT genre, count(*) AS id FROM films WHERE LLM('yes', title) = 'Yes' GROUP BY ALL HAVING id > 1
SELECT genre, count(*) AS id FROM films WHERE LLM('yes', title) = 'Yes' GROUP BY genre HAVING id > 1
  AND max(id) < 5
SELECT LLM('up', genre) AS genre, count(*) FROM films WHERE LLM('yes', title) = 'Yes' GROUP BY ALL
  HAVING genre <> 'COMEDY'
SELECT upper(genre) AS genre, max(LLM('up', id)) FROM films WHERE LLM('yes', title) = 'Yes' GROUP BY
  ALL HAVING genre <> 'COMEDY'
SELECT upper(genre) AS genre, max(LLM('up', id)) FROM films WHERE LLM('yes', title) = 'Yes' GROUP BY
  genre HAVING genre <> 'comedy'
SELECT 7 AS id, max(LLM('up', id)) FROM films WHERE LLM('yes', title) = 'Yes' GROUP BY films.id
  HAVING id < 5
SELECT 7 AS seen, films.seen AS x, max(id) FROM films WHERE LLM('yes', title) = 'Yes' GROUP BY 2
  HAVING seen
SELECT LLM('up', genre) AS id, id + 1 AS x, LLM('up', count(*)) FROM films WHERE LLM('yes', title) =
  'Yes' GROUP BY 1, 2 HAVING id <> 'COMEDY' ORDER BY id, x
SELECT -id AS id, LLM('up', count(*)) FROM films WHERE LLM('yes', title) = 'Yes' GROUP BY id ORDER
  BY id
SELECT LLM('up', min(genre)) AS id, max(films.id) FROM films WHERE LLM('yes', title) = 'Yes' GROUP
  BY films.id ORDER BY id, 2
SELECT LLM('up', id) AS genre, films.genre FROM films WHERE LLM('yes', title) = 'Yes' ORDER BY genre
  DESC
SELECT films.genre, LLM('up', id) AS genre FROM films WHERE LLM('yes', title) = 'Yes' ORDER BY genre
  DESC
SELECT -id AS seen, id AS seen, films.seen FROM films WHERE LLM('yes', title) = 'Yes' ORDER BY seen
SELECT -id AS id, row_number() OVER (ORDER BY id) FROM films WHERE LLM('yes', title) = 'No'
SELECT -id AS id, row_number() OVER (ORDER BY id) + id FROM films WHERE LLM('yes', title) = 'No'
  ORDER BY id
SELECT 7 AS id, array_agg(title ORDER BY id DESC) FROM films WHERE LLM('yes', title) = 'No'
SELECT max(-id) AS id, list(title ORDER BY id) FROM films WHERE LLM('yes', title) = 'No'
SELECT 7 AS id, rank() OVER w FROM films WHERE LLM('yes', title) = 'No' WINDOW w AS (ORDER BY id)
SELECT 7 AS id, title FROM films WHERE LLM('yes', title) = 'No' QUALIFY row_number() OVER (PARTITION
  BY genre ORDER BY id DESC) = 1
SELECT count(*) AS id, string_agg(title, ',' ORDER BY id, title) FROM films WHERE LLM('yes', title)
  = 'No' GROUP BY genre
SELECT mode() WITHIN GROUP (ORDER BY -id) AS id, mode() WITHIN GROUP (ORDER BY id) FROM films WHERE
  LLM('yes', title) = 'No'
SELECT genre, count(*) AS id FROM films WHERE LLM('yes', title) = 'No' GROUP BY ALL HAVING id > 1
SELECT genre, count(*) AS id FROM films WHERE LLM('yes', title) = 'No' GROUP BY genre HAVING id > 1
  AND max(id) < 5
SELECT upper(genre) AS genre, max(LLM('up', id)) FROM films WHERE LLM('yes', title) = 'No' GROUP BY
  ALL HAVING genre <> 'COMEDY'
SELECT upper(genre) AS genre, max(LLM('up', id)) FROM films WHERE LLM('yes', title) = 'No' GROUP BY
  genre HAVING genre <> 'comedy'
SELECT 7 AS seen, films.seen AS x, max(id) FROM films WHERE LLM('yes', title) = 'No' GROUP BY 2
  HAVING seen
SELECT LLM('up', genre) AS id, id + 1 AS x, LLM('up', count(*)) FROM films WHERE LLM('yes', title) =
  'No' GROUP BY 1, 2 HAVING id <> 'COMEDY' ORDER BY id, x
SELECT LLM('up', min(genre)) AS id, max(films.id) FROM films WHERE LLM('yes', title) = 'No' GROUP BY
  films.id ORDER BY id, 2
SELECT LLM('up', id) AS genre, films.genre FROM films WHERE LLM('yes', title) = 'No' ORDER BY genre
  DESC
SELECT -id AS seen, id AS seen, films.seen FROM films WHERE LLM('yes', title) = 'No' ORDER BY seen

-- keys by their place in the select list
SELECT title, id, LLM('up', id) FROM films ORDER BY #1 DESC NULLS LAST, #2
SELECT DISTINCT ON (#1) genre, id, LLM('up', id) FROM films ORDER BY #1, #2 DESC
SELECT title, id FROM films WHERE LLM('yes', title) = 'No' ORDER BY #1 LIMIT 2
SELECT genre, max(LLM('up', title)) FROM films GROUP BY ALL ORDER BY #2
SELECT genre, array_agg(LLM('up', #1) ORDER BY #1 DESC) FROM films GROUP BY genre ORDER BY #1
SELECT title FROM films WHERE LLM('yes', title) = 'No' UNION ALL SELECT text FROM reviews ORDER BY #1
