-- an unknown column is named with the nearest one
SELECT LLM('up', titel) FROM films  ! UnknownColumnError 'titel'.*Did you mean 'title'\?
SELECT titel, LLM('up', id) FROM films  ! UnknownColumnError 'titel'.*Did you mean 'title'\?
SELECT LLM('up', id) FROM films WHERE titel = 'x'
! UnknownColumnError 'titel'.*Did you mean 'title'\?
SELECT LLM('up', id) FROM films ORDER BY titel  ! UnknownColumnError 'titel'.*Did you mean 'title'\?
SELECT LLM('up', f.titel) FROM films f  ! UnknownColumnError 'titel'.*Did you mean 'title'\?
SELECT LLM('up', LLM('up', titel)) FROM films  ! UnknownColumnError 'titel'.*Did you mean 'title'\?
SELECT titel FROM films  ! UnknownColumnError 'titel'.*Did you mean 'title'\?
WITH a AS (SELECT LLM('up', id) AS u, titel FROM films) SELECT u FROM a
! UnknownColumnError 'titel'.*Did you mean 'title'\?
SELECT v FROM (SELECT LLM('up', title) AS u FROM films)  ! UnknownColumnError 'v' is not in

-- an unknown table is named with the nearest one
SELECT LLM('up', id) FROM flims  ! UnknownTableError 'flims'.*Did you mean 'films'
SELECT * FROM flims  ! UnknownTableError 'flims'.*Did you mean 'films'
FROM flims SELECT 1  ! UnknownTableError 'flims'.*Did you mean 'films'
SELECT LLM('up', g.title) FROM films f  ! QueryError The table 'g' of this FROM clause is not known
SELECT LLM('up', q.*) FROM films f
! QueryError The table 'q' of this FROM clause is not known\. Known: f\.

-- an unknown column lists all columns of its FROM clause
CREATE TABLE pairs AS SELECT 1 AS left_one, 2 AS right_one
SELECT LLM('up', nosuch) FROM pairs
! UnknownColumnError ^Column 'nosuch' is not in table pairs\. Columns: left_one, right_one\.
SELECT LLM('up', p.nosuch) FROM pairs p
! UnknownColumnError ^Column 'nosuch' is not in table p\. Columns: left_one, right_one\.
SELECT nosuch FROM pairs
! UnknownColumnError ^Column 'nosuch' is not in table pairs\. Columns: left_one, right_one\.
SELECT LLM('up', nosuch) FROM (SELECT left_one FROM pairs) q
! UnknownColumnError ^Column 'nosuch' is not in table q\. Columns: left_one\.
SELECT LLM('up', nosuch) FROM (SELECT LLM('up', left_one) AS up, right_one FROM pairs) q
! UnknownColumnError ^Column 'nosuch' is not in table q\. Columns: up, right_one\.
SELECT LLM('up', nosuch) FROM pairs p JOIN pairs q USING (left_one)
! UnknownColumnError ^Column 'nosuch' is not in tables p, q\. Columns: left_one, right_one\.
SELECT LLM('up', nosuch) FROM pairs p, empty e
! UnknownColumnError ^Column 'nosuch' is not in tables p, e\. Columns: left_one, right_one, id,
  text\.
SELECT id FROM films WHERE id IN (SELECT nosuch FROM pairs)
! UnknownColumnError ^Column 'nosuch' is not in table pairs\. Columns: left_one, right_one\.
WITH q AS (SELECT 1 AS one, 2 AS two) SELECT LLM('up', nosuch) FROM q
! UnknownColumnError ^Column 'nosuch' is not in table q\. Columns: one, two\.

-- an option with a plain equals sign is told the right one
SELECT LLM('up', id, labels = ['a', 'b']) FROM films  ! QueryError write labels := \['a', 'b'\]
SELECT LLM('up', labels = 'x') FROM (SELECT 'x' AS labels)

-- a comparison with what is no label is found before the first call
:: SELECT id FROM films WHERE {}
LLM('yes', title, labels := ['Yes', 'No']) = 'yes'
! QueryError with 'yes', but .* are 'Yes', 'No'. Did you .*
(LLM('yes', title, labels := ['Yes', 'No'])) <> 'Maybe'  ! QueryError compared with 'Maybe'
LLM('yes', title, labels := ['Yes', 'No']) IN ('y', 'n')  ! QueryError compared with 'y', 'n'

-- other comparisons of labels are run
@judged LLM('yes', title, labels := ['Yes', 'No'])
:: SELECT id FROM films WHERE {}
{judged} IN ('yes', 'Yes', 'YES')
{judged} <> ''
{judged} > 'a'
{judged} = genre

-- a form that is not run names a rewrite
SELECT * FROM films f, LATERAL (WITH c AS (SELECT f.id AS one) SELECT LLM('up', one) FROM reviews, c WHERE film = one)
! UnsupportedQueryError Join the tables
SELECT * FROM films f ASOF JOIN reviews r ON f.id >= r.film AND LLM('up', f.genre) = LLM('up',
  r.text)
! UnsupportedQueryError ASOF join, which cannot have one
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT CAST(LLM('len', i) AS INTEGER) FROM n) SELECT *
  FROM n
! UnsupportedQueryError Run the recursion first
SELECT list_transform(tags, lambda t: LLM('up', t)) FROM films  ! UnsupportedQueryError unnest
INSERT INTO films (title, id) VALUES (LLM('up', 'x'), DEFAULT)  ! QueryError leave its column out
TRUNCATE empty; DELETE FROM films RETURNING LLM('up', title)
! UnsupportedQueryError In statement 2 of 2: An LLM call is in RETURNING
SELECT * FROM range(CAST(LLM('len', 'x') AS INTEGER))  ! UnsupportedQueryError in FROM
SELECT main.LLM('up', title) FROM films  ! UnsupportedQueryError without a schema
SELECT LLM('up', title) OVER () FROM films  ! UnsupportedQueryError Remove OVER
SELECT LLM(DISTINCT 'up', title) FROM films  ! UnsupportedQueryError Remove DISTINCT
SELECT LLM('up', title ORDER BY id) FROM films  ! UnsupportedQueryError Remove ORDER BY
SELECT LLM('up', title) FILTER (WHERE true) FROM films  ! UnsupportedQueryError Remove FILTER
EXPLAIN (FORMAT JSON) SELECT LLM('up', 1)
! UnsupportedQueryError \(FORMAT JSON\) with.*Write EXPLAIN to
CREATE INDEX i ON films (LLM('up', title))
! UnsupportedQueryError CREATE INDEX with.*CREATE TABLE answers AS
EXPLAIN CREATE VIEW v AS SELECT LLM('up', title) FROM films
! UnsupportedQueryError Explain a query that
EXPLAIN CREATE MACRO m(x) AS (SELECT LLM('up', x))
! UnsupportedQueryError Explain a query that uses

-- no name of ours is in a message
SELECT LLM('up', title), FROM films TABLESAMPLE x  ! QueryError .
SELECT LLM('up', title ORDER BY id) FROM films  ! QueryError .
SELECT * FROM films PIVOT (mi(LLM('up', title)), count(*) FOR id IN (1, 2))  ! QueryError .
PIVOT films ON id USING mi(LLM('up', title))  ! QueryError .
PIVOT films ON genre USING AI_AGG('all', title)  ! UnsupportedQueryError ON a IN \('x', 'y'\)
PIVOT films ON genre IN ('horror') USING max(LLM('up', title))  ! UnsupportedQueryError in FROM
SELECT * REPLACE (LLM('up', title) AS nosuch) FROM films  ! QueryError .
SELECT LLM('up', title) AS a, sum(a) FROM films  ! QueryError .
SELECT (SELECT LLM('up', title), 1) FROM films  ! QueryError .
SELECT LLM('up', title) COLLATE nosuch FROM films  ! QueryError .

-- errors of DuckDB are query errors
SELECT sum(title), LLM('up', id) FROM films  ! QueryError No function matches
SELECT avg(u) FROM (SELECT LLM('up', id) AS u FROM films)  ! QueryError CAST\(LLM\(...\) AS DOUBLE\)
SELECT nope(LLM('up', id)) FROM films  ! QueryError nope
SELECT max(LLM('up', id))::DATE FROM films  ! QueryError column max\(LLM\(\.\.\.\)\)
SELECT id, count(LLM('up', id)) FROM films  ! QueryError GROUP BY
SELECT id FROM films WHERE LLM('yes', id)  ! QueryError LLM\(...\) = 'Yes'
SELECT if(NOT LLM('yes', id), 1, 2) FROM films  ! QueryError LLM\(...\) = 'Yes'
SELECT x.llm('up') FROM films x  ! UnsupportedQueryError without a schema or value
SELECT LLM('up', c) FROM 'nowhere.csv'  ! TableError No files found
INSERT INTO films SELECT LLM('up', id) FROM films  ! QueryError column
SELECT error('boom')  ! QueryError boom

-- the connection is usable after an error
SELECT LLM('up', titel) FROM films  ! QueryError titel
SELECT LLM('up', title) FROM films WHERE id = 1  = [("ALIEN",)]

-- a call inside of an expression of DuckDB is shown as one, whatever its answers are read as
SELECT LLM('up', title, output := 'INTEGER').foo FROM films
! QueryError from expression "CAST\(LLM\(\.\.\.\) AS INTEGER\)" because

-- what names no column, or has no tree, says so
SELECT LLM('up', title) FROM films LIMIT id  ! QueryError LIMIT and OFFSET take a number
SELECT * FROM LLM('up', 'a')  ! UnsupportedQueryError cannot stand in FROM. Write SELECT LLM
FROM films, AI_FILTER('yes', title) AS a  ! UnsupportedQueryError cannot stand in FROM
SELECT LLM('up', seen) FROM (PIVOT films ON genre USING max(id) GROUP BY seen)
! UnsupportedQueryError ON a IN \('x', 'y'\)
MERGE INTO films USING reviews r USING (id) WHEN MATCHED THEN UPDATE SET title = LLM('up', r.text)
! UnsupportedQueryError MERGE with.*CREATE TABLE answers AS
