-- a statement that must fail does before its calls
@up SELECT id, LLM('up', title) AS up FROM films
CREATE SCHEMA s; CREATE TABLE s.There AS SELECT 1 AS a; CREATE TEMP TABLE passing AS SELECT 1 AS a;
  CREATE VIEW seen AS SELECT 1 AS a; ATTACH ':memory:' AS other;
  CREATE TABLE other.far AS SELECT 1 AS a
CREATE TABLE films AS {up}  ! QueryError CREATE OR REPLACE TABLE films
CREATE TABLE FILMS AS {up}  ! QueryError already exists
CREATE TABLE s.there AS {up}  ! QueryError s.there already exists
CREATE TABLE memory.s.there AS {up}  ! QueryError already exists
CREATE TEMP TABLE passing AS {up}  ! QueryError already exists
CREATE TABLE seen AS {up}  ! QueryError already exists
CREATE TABLE other.far AS {up}  ! QueryError already exists
CREATE TABLE nowhere.t AS {up}  ! QueryError nowhere
INSERT INTO nowhere {up}  ! QueryError nowhere
INSERT INTO films {up}  ! QueryError 7 columns
INSERT INTO reviews (id, nope) {up}  ! QueryError nope
INSERT INTO reviews BY NAME {up}  ! QueryError up
COPY ({up}) TO '/nowhere/up.csv'  ! QueryError the folder /nowhere does not exist
COPY ({up}) TO 'up.csv' (FORMAT nope)  ! QueryError nope

-- a table of the same name elsewhere is another
CREATE SCHEMA s; CREATE TABLE s.There AS SELECT 1 AS a; CREATE TEMP TABLE passing AS SELECT 1 AS a;
  ATTACH ':memory:' AS other; CREATE TABLE other.far AS SELECT 1 AS a
CREATE TABLE memory.main.passing AS {up}
SELECT up FROM memory.main.passing WHERE id = 6  = [("DUNE",)]
CREATE TABLE s.films AS {up}
SELECT up FROM s.films WHERE id = 6  = [("DUNE",)]
CREATE TABLE There AS {up}
SELECT up FROM There WHERE id = 6  = [("DUNE",)]
CREATE TABLE other.films AS {up}
SELECT up FROM other.films WHERE id = 6  = [("DUNE",)]
CREATE OR REPLACE TABLE reviews AS {up}
SELECT up FROM reviews WHERE id = 6  = [("DUNE",)]

-- a table that is there is asked nothing for
CREATE TABLE IF NOT EXISTS films AS {up}  # 0
EXPLAIN CREATE TABLE IF NOT EXISTS films AS {up}  = []
SELECT count(*) FROM films  = [(6,)]
CREATE TABLE IF NOT EXISTS fresh AS {up}
SELECT up FROM fresh WHERE id = 6  = [("DUNE",)]

-- columns of any name and type can be written
@wide SELECT LLM('up', title) AS "o""k", info AS "a b", {'x y': 1, 'z': [1.5]} AS "a b",
  'a'::ENUM('a', 'b c') AS e, map([1], ['x']) AS m, 1::DECIMAL(9, 3) AS d FROM films
CREATE TABLE wide AS {wide}
INSERT INTO wide {wide}
SELECT count(*) FROM wide  = [(12,)]

-- columns without a name are named as DuckDB names them
@items LLM('up', title), upper(LLM('up', "id") || ')''('), LLM('len', LLM('up', id)) + 1
@names ["llm('up', title)", "upper((llm('up', \"id\") || ')''('))", "(llm('len', LLM('up', id)) + 1)"]
CREATE TABLE o AS SELECT {items} FROM films WHERE id = 1
? con.tables()["o"] == {names}
SELECT {items} FROM films WHERE id = 1
? columns == {names}

-- an aggregate of answers that fits no column is null there
CREATE TABLE days (day DATE)
INSERT INTO days SELECT max(LLM('up', id)) FROM films
~ PartialResultWarning value of type DATE
? [one.text for one in errors] == ["6"]
? "_rq_" not in errors[0].error
FROM days  = [(None,)]

-- words for the time keep their names
SELECT current_timestamp, current_time, localtime, now(), LLM('up', current_date) AS u FROM films
  LIMIT 1
? columns == ["current_timestamp", "current_time", "localtime", "now()", "u"]
? list(fields) == ["current_date"]
