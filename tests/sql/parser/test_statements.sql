-- a definition is read as if it were written out
CREATE VIEW answers AS SELECT id, title, LLM('up', title) AS loud FROM films
CREATE VIEW v AS SELECT id, LLM('up', title) FROM films
CREATE VIEW named(a, b) AS SELECT id, LLM('up', title) FROM films
CREATE VIEW partly(a) AS SELECT id, LLM('up', title) AS u FROM films
CREATE VIEW over_view AS SELECT id, LLM('len', loud) + 1 AS n FROM answers
CREATE MACRO even(x) AS LLM('yes', x) = 'Yes'
CREATE VIEW over_macro AS SELECT id FROM films WHERE even(title)
CREATE MACRO ask(question, x) AS LLM(question, x)
CREATE OR REPLACE TEMP MACRO shout(x) AS LLM('up', x || '!')
CREATE OR REPLACE TEMP VIEW passing AS SELECT LLM('up', title) AS loud FROM films
CREATE MACRO good(x) AS AI_FILTER('yes', x)
CREATE VIEW judged AS SELECT good(title) AS g FROM films
CREATE MACRO twice(x) AS x || x
FROM Answers SELECT answers.loud WHERE id = 6  = [('DUNE',)]
SELECT a.loud FROM "answers" AS a JOIN reviews r ON r.film = a.id WHERE r.id = 12  = [('AMELIE',)]
WITH x AS (SELECT * FROM answers) SELECT loud FROM x WHERE id = 6  = [('DUNE',)]
WITH answers AS (SELECT 7 AS a) SELECT * FROM answers  = [(7,)]
SELECT b FROM named WHERE a = 6  = [('DUNE',)]
SELECT x, u FROM partly AS w(x) WHERE x = 6  = [(6, 'DUNE')]
SELECT n FROM over_view WHERE id = 6  = [(5.0,)]
SELECT id FROM films WHERE even(title) ORDER BY id  = [(2,), (3,), (6,)]
SELECT count(*) FROM over_macro  = [(3,)]
SELECT ask('up', x := ask('up', 'a')), shout(shout('a' || 'b')), twice(LLM('up', 'a'))
= [('A', 'AB!!', 'AA')]
SELECT count(loud) FROM passing  = [(5,)]
SELECT * FROM answers WHERE id = 1  # 1
SELECT * FROM answers LIMIT 2  # 2
WITH answers AS (SELECT 7 AS a) SELECT x.loud FROM Main.answers x WHERE id = 6  = [('DUNE',)]
WITH films AS (SELECT 7 AS a) SELECT films.a, answers.loud FROM films, answers WHERE id = 6  = [(7, 'DUNE')]
PIVOT main.named "A b" ON b IN ('DUNE') USING max(a)  = [(6,)]
SELECT count(*) FROM answers WHERE loud = 'DUNE'  # 4
SELECT id FROM films WHERE even(title) AND id <= 2  # 2
SELECT twice('a')
? con.database.connection.execute("SELECT twice('a')").fetchall() == [("aa",)]
# 0
SELECT * FROM v  ? columns == ["id", "llm('up', title)"] == con.tables()["v"]
SELECT "llm('up', title)" FROM v WHERE id = 6  = [("DUNE",)]
SELECT even(title), even(genre) OR id > 1 FROM films
? columns == ["even(title)", "(even(genre) OR (id > 1))"]
? {one.expression for one in stages} == {"llm('yes', title)", "llm('yes', genre)"}
DESCRIBE v
? [row[:2] for row in rows] == [('id', 'INTEGER'), ("llm('up', title)", 'VARCHAR')]
# 0
DESCRIBE SELECT * FROM v
? [row[:2] for row in rows] == [('id', 'INTEGER'), ("llm('up', title)", 'VARCHAR')]
# 0
DESCRIBE judged
? [row[:2] for row in rows] == [('g', 'BOOLEAN')]
# 0
DESCRIBE WITH w AS (SELECT id, LLM('up', title) AS up, AI_SCORE('good', title) AS s FROM films)
  SELECT * FROM w
? [row[:2] for row in rows] == [('id', 'INTEGER'), ('up', 'VARCHAR'), ('s', 'DOUBLE')]
# 0

-- what cannot be is refused without a call
CREATE VIEW v AS SELECT LLM('up', title) AS u FROM films
CREATE MACRO one(x) AS LLM('up', x)
CREATE VIEW v AS SELECT 1  ! QueryError already exists
CREATE VIEW v AS SELECT LLM('up', 1)  ! QueryError already exists
CREATE TABLE v (a INTEGER)  ! QueryError already exists
CREATE OR REPLACE TABLE v (a INTEGER)  ! QueryError already exists
CREATE VIEW films AS SELECT LLM('up', 1)  ! QueryError already exists
CREATE OR REPLACE VIEW films AS SELECT LLM('up', 1)  ! QueryError is of type Table
DROP TABLE v  ! QueryError DROP VIEW v
INSERT INTO v VALUES (1)  ! QueryError is a view
CREATE OR REPLACE VIEW v AS SELECT LLM('up', a) FROM v  ! QueryError reads itself
CREATE MACRO m(x) AS LLM('up', m(x))  ! QueryError reads itself
CREATE VIEW w AS SELECT LLM('up', titel) FROM films  ! QueryError titel
CREATE VIEW w(a, b) AS SELECT LLM('up', title) FROM films  ! QueryError aliases
CREATE VIEW w AS SELECT LLM('up', title, labels := 'x') FROM films  ! QueryError labels
CREATE MACRO m(x) AS LLM('up', y)  ! QueryError y
CREATE MACRO m(x INTEGER) AS LLM('up', x)  ! UnsupportedQueryError type or a default value for x
CREATE MACRO m(x := 1) AS LLM('up', x)  ! UnsupportedQueryError type or a default value for x
CREATE MACRO m(x) AS TABLE SELECT LLM('up', x)  ! UnsupportedQueryError Create a view
CREATE MACRO m(x) AS (SELECT max(LLM('up', title)) FROM films WHERE id = x)
! UnsupportedQueryError Create a view
CREATE MACRO newest(x) AS (SELECT max(text || x) FROM reviews)
SELECT newest(LLM('up', title)) FROM films  ! UnsupportedQueryError write out what the macro does
CREATE MACRO m(x) AS LLM('up', x), (x, y) AS LLM('up', x, y)  ! QueryError several forms
CREATE VIEW main.w AS SELECT LLM('up', 1)  ! QueryError Leave the schema out
SELECT one(1, 2)  ! QueryError given 2 values
SELECT one()  ! QueryError no value for x
SELECT one(x := 1, y := 2)  ! QueryError no parameter y
UPDATE v SET u = LLM('up', u)  ! QueryError v is a view
CREATE VIEW w AS SELECT u FROM v; CREATE OR REPLACE VIEW v AS SELECT LLM('up', u) AS u FROM w
! QueryError w reads v reads w
SELECT count(u) FROM v  = [(5,)]

-- if exists and or replace do as in DuckDB
@answers CREATE VIEW answers AS SELECT id, title, LLM('up', title) AS loud FROM films
{answers}
CREATE VIEW IF NOT EXISTS answers AS SELECT LLM('up', 'no') AS loud
CREATE TABLE IF NOT EXISTS answers (a INTEGER)
SELECT count(loud) FROM answers  = [(5,)]
CREATE OR REPLACE VIEW answers AS SELECT LLM('up', 'new') AS loud
SELECT loud FROM answers  = [("NEW",)]
CREATE OR REPLACE VIEW answers AS SELECT 'plain' AS loud
SELECT loud FROM answers  = [("plain",)]
CREATE OR REPLACE VIEW answers AS SELECT LLM('up', 'x') AS loud
SELECT loud FROM answers  = [("X",)]
DROP VIEW answers; DROP VIEW IF EXISTS answers
FROM answers  ! QueryError answers

-- a macro can be dropped
@macro CREATE OR REPLACE MACRO m(x) AS LLM('up', x)
{macro}; DROP MACRO m
SELECT m(1)  ! QueryError .
{macro}; DROP FUNCTION IF EXISTS m
SELECT m(1)  ! QueryError .
{macro}; CREATE OR REPLACE MACRO m(x := 2) AS x + 1
SELECT m()  = [(3,)]

-- tables read a view
CREATE VIEW v AS SELECT id, id AS film, LLM('up', title) AS text FROM films
CREATE TABLE t AS FROM v; INSERT INTO reviews SELECT * FROM v WHERE id = 6
SELECT text FROM t WHERE id = 6  = [("DUNE",)]
SELECT text FROM reviews WHERE id = 6  = [("DUNE",)]
PREPARE p AS SELECT text FROM v WHERE id = $1  ! UnsupportedQueryError values beside it
CREATE MACRO even(x) AS LLM('yes', x) = 'Yes'
CREATE TABLE named AS SELECT id, even(title) FROM films
? con.tables()["named"] == ["id", "even(title)"]

-- a with clause may stand before insert
WITH z AS (SELECT id, LLM('up', title) AS u FROM films) INSERT INTO reviews SELECT id, id, u FROM z
  WHERE u = 'DUNE'
WITH z AS (SELECT 7 AS i) INSERT INTO reviews WITH y AS (SELECT i FROM z) SELECT i, i, LLM('up', i)
  FROM y
SELECT text FROM reviews WHERE text = 'DUNE' OR id = 7 ORDER BY id  = [("DUNE",), ("7",)]

-- rows that a table takes are inserted
CREATE TABLE strict (id INTEGER PRIMARY KEY, text VARCHAR, n INTEGER CHECK (n > 3))
INSERT INTO strict SELECT id, LLM('up', title), id + 3 FROM films
INSERT OR IGNORE INTO strict SELECT id, LLM('up', title), 5 FROM films WHERE id < 3
SELECT count(*), min(text) FROM strict  = [(6, "ALIEN")]

-- a statement is prepared by DuckDB if it has no calls
PREPARE p AS SELECT id FROM films WHERE id = $1
EXECUTE p(6)  = [(6,)]
DEALLOCATE PREPARE p
EXECUTE p(6)  ! QueryError .

-- statements run in order and the last gives the rows
CREATE TABLE loud AS SELECT id, LLM('up', title) AS t FROM films; DELETE FROM loud WHERE id > 2;
  SELECT id, LLM('len', t) + 0 AS n FROM loud ORDER BY id; -- the end
? columns == ["id", "n"]
= [(1, 5.0), (2, 6.0)]

-- the report says which statement asked
SELECT LLM('up', title) FROM films; SELECT 1; SELECT LLM('yes', title) FROM films
? [(one.name, one.statement) for one in stages] == [("projection 1", 1), ("projection 2", 3)]
? result.report.calls == len(asked)
? "statement" in str(result.report)
SELECT LLM('up', title) FROM films
? [one.statement for one in stages] == [None]
? "statement" not in str(result.report)

-- errors of all statements say which
SELECT LLM('up', title)::INT FROM films WHERE id = 1;
  SELECT LLM('up', genre)::DATE FROM films WHERE id < 3
~ PartialResultWarning .
? [(one.statement, one.stage) for one in errors] == [(1, "projection 1"), (2, "projection 2"),
  (2, "projection 2")]
? [one.errors for one in stages] == [1, 2]

-- a later failure costs nothing: with calls, and with all else up to the first statement that writes
@first CREATE TABLE t AS SELECT LLM('up', title) AS id FROM films; SELECT 1;
@asks SELECT LLM('up', title) FROM films; SELECT 1;
{asks} UPDATE films SET title = LLM('up', nix)
! QueryError In statement 3 of 3: .*'nix' is not in table films
{first} SELECT LLM('up', id, label := 'x') FROM t
! QueryError In statement 3 of 3: .*option
? "t" not in con.tables()
{asks} SELECT LLM('up', titel) FROM films
! UnknownColumnError In statement 3 of 3: .*titel
{asks} SELECT titel FROM films
! UnknownColumnError In statement 3 of 3: .*titel
{asks} INSERT INTO reviews SELECT LLM('up', title) FROM films
! QueryError In statement 3 of 3: .*columns
{first} CREATE VIEW v AS SELECT LLM('up', id, label := 'x') FROM t
! QueryError In statement 3 of 3: .*option
{first} EXPLAIN (FORMAT json) SELECT LLM('up', id) FROM t
! UnsupportedQueryError In statement 3 of 3: .*ANALYZE
? "t" not in con.tables()

-- what earlier statements write is not checked too early
SELECT LLM('up', title) FROM films; ALTER TABLE reviews ADD COLUMN stars INTEGER;
  CREATE MACRO first_review() AS (SELECT min(text) FROM reviews WHERE stars IS NULL);
  SELECT LLM('up', text), stars, first_review() FROM reviews WHERE id = 10
= [("GREAT", None, "great")]

-- a failure says what was paid for
CREATE TABLE t AS SELECT LLM('up', title) AS x FROM films WHERE id < 3; SELECT x::INTEGER FROM t
! LateQueryError In statement 2 of 2: .*2 calls were made
? error.calls == len(asked) == 2
SELECT x FROM t ORDER BY x  = [("ALIEN",), ("AMELIE",)]

-- only the last may be explained
CREATE TABLE t AS SELECT 1 AS a; EXPLAIN SELECT LLM('up', a) FROM t
? [one["calls"] for one in told] == [1]
# 0
EXPLAIN SELECT LLM('up', 1); SELECT 2  ! QueryError one at a time
EXPLAIN SELECT 1; EXPLAIN SELECT 2  ! QueryError one at a time

-- a transaction that is rolled back leaves no table
BEGIN; CREATE TABLE t AS SELECT LLM('up', title) AS x FROM films; ROLLBACK
? "t" not in con.tables()
BEGIN; CREATE TABLE t AS SELECT LLM('up', title) AS x FROM films; COMMIT
SELECT count(x) FROM t  = [(5,)]

-- checks do not abort a transaction
@both SELECT (SELECT max(r.text) FROM reviews r WHERE r.film = f.id), LLM('up', f.genre) FROM films f
  WHERE id = 1
BEGIN; UPDATE films SET genre = 'new' WHERE id = 1
{both}  = [("scary", "NEW")]
ROLLBACK
{both}  = [("scary", "HORROR")]

-- an aborted transaction keeps its own error
BEGIN
SELECT LLM('up', title::INTEGER) FROM films  ! QueryError Could not convert
ROLLBACK
SELECT LLM('up', 1)  = [("1",)]

-- a parameter may stand where a value may
SELECT LLM('up', title) FROM films ORDER BY id LIMIT ? OFFSET ?
= [('DUNE',)]
$ [1, 5]
SELECT LLM($2, title) FROM films WHERE id = $1
= [('DUNE',)]
$ [6, 'up']
SELECT LLM('up', title, max_tokens := $n, temperature := $t) FROM films WHERE id = 6
= [('DUNE',)]
$ {'n': 9, 't': 0.0}
SELECT id FROM films WHERE LLM('len', title) < $n
= [(6,)]
$ {'n': 5}
SELECT LLM('up', coalesce(title, $d)) FROM films WHERE id = 5
= [('X',)]
$ {'d': 'x'}
WITH x AS (SELECT LLM('up', title) AS u, id + ? AS i FROM films) SELECT u FROM x WHERE i = ?
= [('DUNE',)]
$ [1, 7]

-- a parameter may stand in more places (long)
SELECT LLM(?, title) FROM films WHERE id = ?
= [('DUNE',)]
$ ['up', 6]
SELECT LLM('up', title, labels := $of) FROM films WHERE id = $ID
= [('DUNE',)]
$ {'of': ['DUNE', 'OTHER'], 'id': 6}
SELECT id FROM films WHERE LLM('up', title) = $name
= [(6,)]
$ {'name': 'DUNE'}
SELECT LLM('up', title) FROM films WHERE info.year > ($y::DATE).year()
= [('DUNE',)]
$ {'y': '2020-01-01'}
SELECT LLM('up', title), tags[?], title[?::INT], tags[1 + 1] FROM films WHERE id = 1
= [('ALIEN', 'ship', 'A', 'ship')]
$ [2, '1']
SELECT LLM('up', tags[$n]), title[1 + length(LLM('len', title))] FROM films WHERE id = 1
= [('SHIP', 'l')]
$ {'n': 2}
SELECT LLM('up', title, $no) FROM films WHERE id = 6
= [('NULL|DUNE',)]
$ {'no': None}
CREATE TABLE t AS SELECT id, LLM('up', title) AS u FROM films WHERE id > ?; INSERT INTO t VALUES (?,
  ?); SELECT u FROM t WHERE id > ? ORDER BY id
= [('DUNE',), ('seven',)]
$ [5, 7, 'seven', 5]
CREATE MACRO ask(x, q) AS LLM(q, x); SELECT ask($x, $q)
= [('A',)]
$ {'x': 'a', 'q': 'up'}

-- a field has its name or its parameters
SELECT LLM('up', $topic, title), LLM('up', f := coalesce($topic), title) FROM films WHERE id = 6
$ {"topic": "war"}
? [one.fields for one in asked] == [{"topic": "war", "title": "Dune"}, {"f": "war", "title": "Dune"}]
SELECT LLM('up', f := coalesce(?), title) FROM films WHERE id = 6
$ ["peace"]
? fields == {"f": "peace", "title": "Dune"}

-- parameters may touch what follows
SELECT LLM('up', $a,$b),$a FROM films LIMIT 1  = [("X|Y", "x")]
$ {"a": "x", "b": "y"}

-- a filter by parameter ends early
SELECT id FROM films WHERE LLM('up', title) = $t
$ {"t": "DUNE"}
? {one.sampling for one in asked} == {Compared(texts=("DUNE",))}

-- explain takes parameters
EXPLAIN SELECT LLM($q, title) FROM films WHERE id < $n
$ {"q": "up", "n": 3}
? [(one["prompt"], one["rows"]) for one in told] == [("up", 2)]
# 0

-- a schema may be a parameter
SELECT AI_EXTRACT(title, $s) FROM films WHERE id = 1
$ {"s": {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}}
~ PartialResultWarning not JSON
? '"a"' in str(sampling)

-- no variable is left in DuckDB
SELECT LLM('up', 'a'), $v
$ {"v": [1, None]}
SELECT LLM('up', nosuch), $v  ! QueryError nosuch
$ {"v": [1, None]}
SELECT count(*) FROM duckdb_variables()  = [(0,)]

-- wrong parameters are refused at once
:: CREATE TABLE made AS SELECT 1; {}
SELECT LLM('up', $a)  ! QueryError needs a value for \$a
SELECT LLM('up', ?)
! QueryError no value for \$1.*none
$ []
SELECT LLM('up', $a)
! QueryError no value for \$a. It has \$b
$ {"b": 1}
SELECT LLM('up', $a)
! QueryError value for \$b, which
$ {"a": 1, "b": 1}
SELECT LLM('up', $1, $3)
! QueryError value for \$2, which
$ [1, 2, 3]
SELECT LLM('up', $1, $3)
! QueryError no value for \$3
$ [1, 2]
SELECT LLM('up', ?)
! QueryError must be a list
$ {"a": 1}
SELECT LLM('up', $a)
! QueryError must be a dict
$ [1]
SELECT LLM('up', $a)
! QueryError must be a list
$ "x"
SELECT LLM('up', 'x')
! QueryError value for \$1, which
$ [1]
SELECT LLM('up', 'x'); SELECT ?, ?
! QueryError no value for \$2
$ [1]
SELECT LLM('up', $a)
! QueryError lone surrogate
$ {"a": "\ud800"}
SELECT LLM('up', 'x'); SELECT $a
! QueryError DuckDB cannot take
$ {"a": 2**200}
SELECT LLM('up', 'x'); SELECT $a
! QueryError DuckDB cannot take
$ {"a": object()}
SELECT LLM('up', 'x'); SELECT $a
! QueryError DuckDB cannot take
$ {"a": dict}
SELECT LLM('up', 'x'), $a
! QueryError DuckDB cannot take
$ {"a": dict}
SELECT LLM('up', 'x', $a)
! QueryError DuckDB cannot take
$ {"a": dict}
CREATE VIEW v AS SELECT LLM('up', $a)
! QueryError cannot have parameters
$ {"a": 1}
CREATE MACRO m(x) AS LLM($a, x)
! QueryError cannot have parameters
$ {"a": "up"}
? "made" not in con.tables()
SELECT LLM('up', 'x', max_tokens := $n)
! QueryError max_tokens
$ {"n": "many"}
