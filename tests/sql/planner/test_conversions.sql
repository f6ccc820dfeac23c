@a LLM('?', id)
-- what is no value is null with a row error
:: SELECT {} FROM t ORDER BY id
{a}::INT
= [(7,), (None,), (None,), (None,)]
~ PartialResultWarning .
? failed == [2, 3, 4]
CAST({a} AS DATE)
= [(None,), (None,), (date(2024, 1, 3),), (None,)]
~ PartialResultWarning .
? failed == [1, 2, 4]
{a}::JSON
= [('7',), (None,), (None,), ('{"k": [7]}',)]
~ PartialResultWarning .
? failed == [2, 3]
{a}::VARCHAR
= [('7',), ('abc',), ('2024-01-03',), ('{"k": [7]}',)]
? not errors
TRY_CAST({a} AS INT)
= [(7,), (None,), (None,), (None,)]
? not errors
coalesce({a}::INT, 0)
= [(7,), (0,), (0,), (0,)]
~ PartialResultWarning .
? failed == [2, 3, 4]
replace({a}, 'abc', '8')::INT
= [(7,), (8,), (None,), (None,)]
~ PartialResultWarning .
? failed == [3, 4]
CASE WHEN id < 3 THEN {a} ELSE '9' END::INT
= [(7,), (None,), (9,), (9,)]
~ PartialResultWarning .
? failed == [2]
CASE WHEN id = 1 THEN {a}::INT ELSE n END
= [(7,), (0,), (1,), (None,)]
? not errors
{a} = d
= [(None,), (None,), (True,), (None,)]
~ PartialResultWarning .
? failed == [1, 2, 4]
{a} IN (n, 8)
= [(True,), (None,), (None,), (None,)]
~ PartialResultWarning .
? failed == [2, 3, 4]
{a} IS DISTINCT FROM n
= [(False,), (True,), (True,), (False,)]
~ PartialResultWarning .
? failed == [2, 3, 4]
{a} > 3
= [(True,), (None,), (None,), (None,)]
~ PartialResultWarning .
? failed == [2, 3, 4]
CASE {a} WHEN 7 THEN 'y' ELSE 'n' END
= [('y',), ('n',), ('n',), ('n',)]
~ PartialResultWarning .
? failed == [2, 3, 4]
CASE n WHEN {a} THEN 'y' ELSE 'n' END
= [('y',), ('n',), ('n',), ('n',)]
~ PartialResultWarning .
? failed == [2, 3, 4]
nullif({a}, 7)
= [(None,), ('abc',), ('2024-01-03',), ('{"k": [7]}',)]
~ PartialResultWarning .
? failed == [2, 3, 4]
{a} = 'abc'
= [(False,), (True,), (False,), (False,)]
? not errors
n = 7 AND {a} = n
= [(True,), (False,), (False,), (None,)]
~ PartialResultWarning .
? failed == [4]
n < 2 OR {a} = n
= [(True,), (True,), (True,), (None,)]
~ PartialResultWarning .
? failed == [4]
coalesce({a}, 0) * 2
= [(14.0,), (0,), (0,), (0,)]
~ PartialResultWarning .
? failed == [2, 3, 4]
strptime({a}, '%Y-%m-%d')
= [(None,), (None,), (datetime(2024, 1, 3, 0, 0),), (None,)]
~ PartialResultWarning .
? failed == [1, 2, 4]
{a} ->> '$.k[0]'
= [(None,), (None,), (None,), ('7',)]
~ PartialResultWarning .
? failed == [2, 3]
json_array_length({a}, '$.k')
= [(None,), (None,), (None,), (1,)]
~ PartialResultWarning .
? failed == [2, 3]
({a} ->> '$.k[0]')::INT
= [(None,), (None,), (None,), (7,)]
~ PartialResultWarning .
? failed == [2, 3]
{a}::TINYINT * 100::TINYINT
= [(None,), (None,), (None,), (None,)]
~ PartialResultWarning .
? failed == [1, 2, 3, 4]
list_transform([{a}], lambda x: x::INT)
= [([7],), (None,), (None,), (None,)]
~ PartialResultWarning .
? failed == [2, 3, 4]

-- what is no value is null with a row error in more places (long)
:: SELECT {} FROM t ORDER BY id
{a}::TIMESTAMP
= [(None,), (None,), (datetime(2024, 1, 3, 0, 0),), (None,)]
~ PartialResultWarning .
? failed == [1, 2, 4]
{a}::BOOLEAN
= [(None,), (None,), (None,), (None,)]
~ PartialResultWarning .
? failed == [1, 2, 3, 4]
{a}::INTERVAL::VARCHAR
= [('00:00:07',), (None,), (None,), (None,)]
~ PartialResultWarning .
? failed == [2, 3, 4]
(({a}))::INT + 1
= [(8,), (None,), (None,), (None,)]
~ PartialResultWarning .
? failed == [2, 3, 4]
{a}::INT::VARCHAR
= [('7',), (None,), (None,), (None,)]
~ PartialResultWarning .
? failed == [2, 3, 4]
coalesce({a}, 'x')::INT
= [(7,), (None,), (None,), (None,)]
~ PartialResultWarning .
? failed == [2, 3, 4]
({a} || '')::INT
= [(7,), (None,), (None,), (None,)]
~ PartialResultWarning .
? failed == [2, 3, 4]
length({a})::TINYINT
= [(1,), (3,), (10,), (10,)]
? not errors
CASE WHEN id > 1 THEN {a}::INT END
= [(None,), (None,), (None,), (None,)]
~ PartialResultWarning .
? failed == [2, 3, 4]
{a} <> n
= [(False,), (None,), (None,), (None,)]
~ PartialResultWarning .
? failed == [2, 3, 4]
{a} = n::BIGINT
= [(True,), (None,), (None,), (None,)]
~ PartialResultWarning .
? failed == [2, 3, 4]
{a} IN (7, 8)
= [(True,), (None,), (None,), (None,)]
~ PartialResultWarning .
? failed == [2, 3, 4]
{a} IS NOT DISTINCT FROM 7
= [(True,), (False,), (False,), (False,)]
~ PartialResultWarning .
? failed == [2, 3, 4]
{a} BETWEEN 1 AND 9
= [(True,), (None,), (None,), (None,)]
~ PartialResultWarning .
? failed == [2, 3, 4]
CASE {a} WHEN n THEN 'y' ELSE 'n' END
= [('y',), ('n',), ('n',), ('n',)]
~ PartialResultWarning .
? failed == [2, 3, 4]
CASE WHEN {a} = n THEN 'y' ELSE 'n' END
= [('y',), ('n',), ('n',), ('n',)]
~ PartialResultWarning .
? failed == [2, 3, 4]
nullif(n, {a})
= [(None,), (0,), (1,), (None,)]
~ PartialResultWarning .
? failed == [2, 3, 4]
{a} = (SELECT max(d) FROM t)
= [(None,), (None,), (True,), (None,)]
~ PartialResultWarning .
? failed == [1, 2, 4]
length({a}) = n
= [(False,), (False,), (False,), (None,)]
? not errors
{a} + n
= [(14.0,), (None,), (None,), (None,)]
~ PartialResultWarning .
? failed == [2, 3, 4]
round({a}) / 2
= [(3.5,), (None,), (None,), (None,)]
~ PartialResultWarning .
? failed == [2, 3, 4]
length({a} -> '$.k')
= [(None,), (None,), (None,), (3,)]
~ PartialResultWarning .
? failed == [2, 3]
coalesce({a} ->> 'k', 'none')
= [('none',), ('none',), ('none',), ('[7]',)]
~ PartialResultWarning .
? failed == [2, 3]
[{a}::INT]
= [([7],), ([None],), ([None],), ([None],)]
~ PartialResultWarning .
? failed == [2, 3, 4]

-- in a subquery and in where it is the same
SELECT v FROM (SELECT id, {a}::INT AS v FROM t) ORDER BY id
= [(7,), (None,), (None,), (None,)]
~ PartialResultWarning .
? failed == [2, 3, 4]
SELECT id FROM t WHERE ({a}::INT) IS NULL ORDER BY id
= [(2,), (3,), (4,)]
~ PartialResultWarning .
? failed == [2, 3, 4]
SELECT v FROM (SELECT id, replace({a}, 'abc', '8')::INT AS v FROM t) ORDER BY id
= [(7,), (8,), (None,), (None,)]
~ PartialResultWarning .
? failed == [3, 4]
SELECT id FROM t WHERE (replace({a}, 'abc', '8')::INT) IS NULL ORDER BY id
= [(3,), (4,)]
~ PartialResultWarning .
? failed == [3, 4]
SELECT v FROM (SELECT id, {a} > 3 AS v FROM t) ORDER BY id
= [(True,), (None,), (None,), (None,)]
~ PartialResultWarning .
? failed == [2, 3, 4]
SELECT id FROM t WHERE ({a} > 3) IS NULL ORDER BY id
= [(2,), (3,), (4,)]
~ PartialResultWarning .
? failed == [2, 3, 4]
SELECT v FROM (SELECT id, n < 2 OR {a} = n AS v FROM t) ORDER BY id
= [(True,), (True,), (True,), (None,)]
~ PartialResultWarning .
? failed == [4]
SELECT id FROM t WHERE (n < 2 OR {a} = n) IS NULL ORDER BY id
= [(4,)]
~ PartialResultWarning .
? failed == [4]
SELECT v FROM (SELECT id, {a}::TINYINT * 100::TINYINT AS v FROM t) ORDER BY id
= [(None,), (None,), (None,), (None,)]
~ PartialResultWarning .
? failed == [1, 2, 3, 4]
SELECT id FROM t WHERE ({a}::TINYINT * 100::TINYINT) IS NULL ORDER BY id
= [(1,), (2,), (3,), (4,)]
~ PartialResultWarning .
? failed == [1, 2, 3, 4]

-- so it is in every clause
SELECT sum({a}::BIGINT), count(*) FROM t
= [(7, 4)]
~ PartialResultWarning .
? failed == [2, 3, 4]
SELECT max({a}::DATE) FILTER (WHERE k = 'y') FROM t
= [(date(2024, 1, 3),)]
~ PartialResultWarning .
? failed == [4]
SELECT count(*) FROM t GROUP BY {a}::INT ORDER BY 1
= [(1,), (3,)]
~ PartialResultWarning .
? failed == [2, 3, 4]
SELECT id, {a} ->> '$.k[0]', max(n) FROM t GROUP BY id ORDER BY id
= [(1, None, 7), (2, None, 0), (3, None, 1), (4, '7', None)]
~ PartialResultWarning .
? failed == [2, 3]
SELECT id FROM t GROUP BY id HAVING {a} = max(d) ORDER BY id
= [(3,)]
~ PartialResultWarning .
? failed == [1, 2, 4]
SELECT id FROM t QUALIFY row_number() OVER (ORDER BY {a}::INT, id) = 1
= [(1,)]
~ PartialResultWarning .
? failed == [2, 3, 4]
SELECT DISTINCT {a}::INT AS v FROM t ORDER BY v
= [(7,), (None,)]
~ PartialResultWarning .
? failed == [2, 3, 4]
SELECT unnest(string_split({a}, '-'))::INT FROM t WHERE id = 3
= [(2024,), (1,), (3,)]
? not errors

-- so it is in the other clauses (long)
SELECT avg({a}) FROM t
= [(7.0,)]
~ PartialResultWarning .
? failed == [2, 3, 4]
SELECT {a}::INT AS v, count(*) FROM t GROUP BY v ORDER BY v
= [(7, 1), (None, 3)]
~ PartialResultWarning .
? failed == [2, 3, 4]
SELECT id, {a}::INT, count(*) FROM t GROUP BY id ORDER BY id
= [(1, 7, 1), (2, None, 1), (3, None, 1), (4, None, 1)]
~ PartialResultWarning .
? failed == [2, 3, 4]
SELECT id, upper({a} ->> '$.k')::JSON ->> 0 || max(n) FROM t GROUP BY id HAVING id > 2 ORDER BY id
= [(3, None), (4, None)]
~ PartialResultWarning .
? failed == [1]
SELECT sum({a}::INT) OVER (ORDER BY id) FROM t ORDER BY id
= [(7,), (7,), (7,), (7,)]
~ PartialResultWarning .
? failed == [2, 3, 4]
SELECT id FROM t ORDER BY {a}::INT NULLS FIRST, id
= [(2,), (3,), (4,), (1,)]
~ PartialResultWarning .
? failed == [2, 3, 4]
SELECT d FROM t WHERE id = 3 UNION ALL SELECT {a}::DATE FROM t WHERE id > 2
= [(date(2024, 1, 3),), (date(2024, 1, 3),), (None,)]
~ PartialResultWarning .
? failed == [2]
SELECT {a}::INT * random() * 0 FROM t ORDER BY id
= [(0.0,), (None,), (None,), (None,)]
~ PartialResultWarning .
? failed == [2, 3, 4]

-- an answer that is no value of its column is null there
CREATE OR REPLACE TABLE o(d DATE, n TINYINT)
INSERT INTO o(d) SELECT {a} FROM t
= [(4,)]
~ PartialResultWarning .
? failed == [1, 2, 4]
FROM o ORDER BY ALL  = [(date(2024, 1, 3), None), (None, None), (None, None), (None, None)]
CREATE OR REPLACE TABLE o(d DATE, n TINYINT)
INSERT INTO o (SELECT {a}, n FROM t WHERE id = 3)
= [(1,)]
? not errors
FROM o ORDER BY ALL  = [(date(2024, 1, 3), 1)]
CREATE OR REPLACE TABLE o(d DATE, n TINYINT)
INSERT INTO o SELECT d, {a} * 100 FROM t WHERE id = 1
= [(1,)]
~ PartialResultWarning .
? failed == [1]
FROM o ORDER BY ALL  = [(date(2024, 1, 1), None)]
CREATE OR REPLACE TABLE o(d DATE, n TINYINT)
INSERT INTO o SELECT {a}, count(*) FROM t GROUP BY id
= [(4,)]
~ PartialResultWarning .
? failed == [1, 2, 4]
FROM o ORDER BY ALL  = [(date(2024, 1, 3), 1), (None, 1), (None, 1), (None, 1)]
CREATE OR REPLACE TABLE o(d DATE, n TINYINT)
INSERT INTO o SELECT upper({a}), n FROM t WHERE id > 2
= [(2,)]
~ PartialResultWarning .
? failed == [2]
FROM o ORDER BY ALL  = [(date(2024, 1, 3), 1), (None, None)]

-- an answer that is no value of its column is null there by other statements (long)
CREATE OR REPLACE TABLE o(d DATE, n TINYINT)
INSERT INTO o SELECT {a}, id FROM t
= [(4,)]
~ PartialResultWarning .
? failed == [1, 2, 4]
FROM o ORDER BY ALL  = [(date(2024, 1, 3), 3), (None, 1), (None, 2), (None, 4)]
CREATE OR REPLACE TABLE o(d DATE, n TINYINT)
INSERT INTO o BY NAME SELECT {a} AS n FROM t
= [(4,)]
~ PartialResultWarning .
? failed == [2, 3, 4]
FROM o ORDER BY ALL  = [(None, 7), (None, None), (None, None), (None, None)]
CREATE OR REPLACE TABLE o(d DATE, n TINYINT)
INSERT INTO o SELECT DISTINCT {a}, 1 FROM t ORDER BY 1 LIMIT 2
= [(2,)]
~ PartialResultWarning .
? failed == [1, 2, 4]
FROM o ORDER BY ALL  = [(date(2024, 1, 3), 1), (None, 1)]
CREATE OR REPLACE TABLE o(d DATE, n TINYINT)
INSERT INTO o SELECT {a}, 1 FROM t WHERE id = 2 UNION ALL SELECT {a}, 2 FROM t WHERE id = 3
= [(2,)]
~ PartialResultWarning .
? failed == [1]
FROM o ORDER BY ALL  = [(date(2024, 1, 3), 2), (None, 1)]

-- a row error says what the place needs
:: SELECT {} FROM t WHERE id = 2
{a}::BIGINT
~ PartialResultWarning .
? [(one.error, one.text, one.inputs) for one in errors] == [("The answer is 'abc'; the query needs a
  number (BIGINT) here. Ask for just a number in the prompt, or pass labels := ['1', '2', ...].",
  "abc", {"id": "2"})]
? (errors[0].stage, errors[0].row, errors[0].attempts) == ("projection 1", 0, 1)
{a} * 2
~ PartialResultWarning .
? [(one.error, one.text, one.inputs) for one in errors] == [("The answer is 'abc'; the query needs a
  number here. Ask for just a number in the prompt, or pass labels := ['1', '2', ...].", "abc",
  {"id": "2"})]
? (errors[0].stage, errors[0].row, errors[0].attempts) == ("projection 1", 0, 1)
{a} = d
~ PartialResultWarning .
? [(one.error, one.text, one.inputs) for one in errors] == [("The answer is 'abc'; the query needs a
  value of type DATE here. Ask for just that in the prompt.", "abc", {"id": "2"})]
? (errors[0].stage, errors[0].row, errors[0].attempts) == ("projection 1", 0, 1)
({a} || '!')::DATE
~ PartialResultWarning .
? [(one.error, one.text, one.inputs) for one in errors] == [("LLM('?', id) || '!' is 'abc!'; the
  query needs a value of type DATE here. Ask for just that in the prompt.", "abc", {"id": "2"})]
? (errors[0].stage, errors[0].row, errors[0].attempts) == ("projection 1", 0, 1)
{a} ->> '$.k'
~ PartialResultWarning .
? [(one.error, one.text, one.inputs) for one in errors] == [("LLM('?', id) ->> '$.k' fails for the
  answer 'abc'. Ask for another format in the prompt.", "abc", {"id": "2"})]
? (errors[0].stage, errors[0].row, errors[0].attempts) == ("projection 1", 0, 1)

-- a row has one error for a call whatever many places read it
SELECT {a}::INT, {a} + 1, {a} = d FROM t WHERE {a} <> 'x' AND id = 2
~ PartialResultWarning .
? [one.stage for one in errors] == ["filter 1"]
? [one.errors for one in stages] == [1]
SELECT {a}::DATE FROM t
% on_error="raise"
! RequestError for id = '1': The answer is '7'; the query needs a val

-- another column that fails fails as ever and before any call
SELECT {a} FROM t WHERE k::INT = 1  ! QueryError 'x'
CREATE TABLE o(d DATE, n TINYINT)
INSERT INTO o SELECT {a}, k FROM t WHERE id = 3  ! QueryError 'y'

-- an outer call sees what SQL says, and NULL where its input is no value
SELECT LLM('say', CASE WHEN {a} > 3 THEN 'many' ELSE 'few' END) FROM t ORDER BY id
~ PartialResultWarning .
? [one[0].split(": ")[-1] for one in rows] == ["'many'}", "'few'}", "'few'}", "'few'}"]
? failed == [2, 3, 4]
SELECT LLM('say', {a}::INT) FROM t WHERE id < 3 ORDER BY id
~ PartialResultWarning .
? [one[0] and one[0].split(": ")[-1] for one in rows] == ["7}", None]
? failed == [2]

-- answers in any type equal those of the same text in a column
SELECT {a}::INT + 1, {a}::DECIMAL(9,2), {a} = id, {a}::JSON FROM t WHERE id = 1
= [(8, Decimal("7.00"), False, "7")]

@inner SELECT id, k, d AS day, {a} AS a FROM t
@w WITH z AS ({inner})
-- a column of a subquery that is no value where it is read is null there
SELECT a::DATE FROM ({inner}) ORDER BY id
= [(None,), (None,), (date(2024, 1, 3),), (None,)]
~ PartialResultWarning .
? failed == [1, 2, 4]
{w} SELECT z.a::INT FROM z, t WHERE t.id = z.id ORDER BY z.id
= [(7,), (None,), (None,), (None,)]
~ PartialResultWarning .
? failed == [2, 3, 4]
{w} SELECT id FROM z WHERE a::DATE = day
= [(3,)]
~ PartialResultWarning .
? failed == [1, 2, 4]
{w} SELECT id FROM z WHERE id < 3 AND a::INT = 7
= [(1,)]
~ PartialResultWarning .
? failed == [2]
{w} SELECT id, a ->> '$.k[0]' FROM z WHERE id > 2 ORDER BY id
= [(3, None), (4, '7')]
~ PartialResultWarning .
? failed == [1]
{w} SELECT CASE WHEN id > 3 THEN a::JSON END FROM z ORDER BY id DESC LIMIT 1
= [('{"k": [7]}',)]
? not errors
{w} SELECT CASE WHEN id = 2 THEN a::JSON END FROM z ORDER BY id LIMIT 2
= [(None,), (None,)]
~ PartialResultWarning .
? failed == [2]
{w}, y AS (SELECT * EXCLUDE (k) FROM z) SELECT y.a::INT FROM y WHERE id < 3 ORDER BY id
= [(7,), (None,)]
~ PartialResultWarning .
? failed == [2]
WITH z(i, b) AS (SELECT id, {a} FROM t) SELECT b::INT FROM z WHERE i < 3 ORDER BY i
= [(7,), (None,)]
~ PartialResultWarning .
? failed == [2]
SELECT u.a::INT FROM ({inner} WHERE id = 1 UNION ALL {inner} WHERE id = 2) u ORDER BY 1
= [(7,), (None,)]
~ PartialResultWarning .
? failed == [2]
{w} SELECT (SELECT max(a::INT) FROM z), count(*) FROM z
= [(7, 4)]
~ PartialResultWarning .
? failed == [2, 3, 4]
{w} FROM (PIVOT (SELECT id, k, a FROM z WHERE id IN (1, 3)) ON k IN ('x', 'y') USING max(a::VARCHAR))
  SELECT x, y ORDER BY id
= [('7', None), (None, '2024-01-03')]
? not errors
{w} SELECT t.id, (SELECT max(z.a::INT) FROM z WHERE z.id = t.id) FROM t WHERE id = 1
= [(1, 7)]
? not errors

-- a column of a subquery that is no value is null where others read it (long)
{w} SELECT a::INT FROM z ORDER BY id
= [(7,), (None,), (None,), (None,)]
~ PartialResultWarning .
? failed == [2, 3, 4]
{w} SELECT sum(a::INT), count(*) FROM z
= [(7, 4)]
~ PartialResultWarning .
? failed == [2, 3, 4]
{w} SELECT id FROM z WHERE a = day
= [(3,)]
~ PartialResultWarning .
? failed == [1, 2, 4]
{w} SELECT a::INT FROM z WHERE a <> 'abc' AND id < 3
= [(7,)]
? not errors
{w} SELECT k, max(a::DATE) FROM z GROUP BY k ORDER BY k
= [('x', None), ('y', date(2024, 1, 3))]
~ PartialResultWarning .
? failed == [1, 2, 4]
{w} SELECT CASE WHEN id = 2 THEN a::JSON END FROM z ORDER BY id LIMIT 1
= [(None,)]
? not errors
{w}, y AS (SELECT id, upper(a) AS b FROM z WHERE id < 3) SELECT b::INT FROM y ORDER BY id
= [(7,), (None,)]
~ PartialResultWarning .
? failed == [2]
{w}, y AS (SELECT a::INT AS n FROM z) SELECT max(n) + 1 FROM y
= [(8,)]
~ PartialResultWarning .
? failed == [2, 3, 4]
SELECT b::INT FROM (SELECT id, {a} FROM t) AS z(i, b) WHERE i < 3 ORDER BY i
= [(7,), (None,)]
~ PartialResultWarning .
? failed == [2]
{w} SELECT id FROM z WHERE id IN (SELECT a::INT - 6 FROM z)
= [(1,)]
~ PartialResultWarning .
? failed == [2, 3, 4]
{w} SELECT TRY_CAST(a AS INT), a FROM z WHERE id < 3 ORDER BY id
= [(7, '7'), (None, 'abc')]
? not errors
{w} SELECT a::DATE FROM z TABLESAMPLE 100% WHERE id = 3
= [(date(2024, 1, 3),)]
? not errors
{w} SELECT list_transform([1], lambda a: a::INT + 1)[1] FROM z WHERE id = 2
= [(2,)]
? not errors

-- an insert of such a column is cast likewise
CREATE OR REPLACE TABLE o(d DATE, n TINYINT)
INSERT INTO o SELECT a, id FROM ({inner}) ORDER BY a LIMIT 2
= [(2,)]
~ PartialResultWarning .
? failed == [2]
FROM o ORDER BY ALL  = [(date(2024, 1, 3), 3), (None, 1)]
CREATE OR REPLACE TABLE o(d DATE, n TINYINT)
{w} INSERT INTO o BY NAME SELECT a AS d FROM z WHERE id > 2
= [(2,)]
~ PartialResultWarning .
? failed == [2]
FROM o ORDER BY ALL  = [(date(2024, 1, 3), None), (None, None)]
CREATE OR REPLACE TABLE o(d DATE, n TINYINT)
INSERT INTO o SELECT max({a}), 1 FROM t
= [(1,)]
~ PartialResultWarning .
? failed == [1]
FROM o ORDER BY ALL  = [(None, 1)]
CREATE OR REPLACE TABLE o(d DATE, n TINYINT)
INSERT INTO o SELECT d, n FROM (SELECT d, n, {a} AS a FROM t) WHERE a = '7'
= [(1,)]
? not errors
FROM o ORDER BY ALL  = [(date(2024, 1, 1), 7)]

-- another insert of such a column is cast likewise (long)
CREATE OR REPLACE TABLE o(d DATE, n TINYINT)
{w} INSERT INTO o SELECT a, id FROM z WHERE id > 1
= [(3,)]
~ PartialResultWarning .
? failed == [1, 3]
FROM o ORDER BY ALL  = [(date(2024, 1, 3), 3), (None, 2), (None, 4)]
CREATE OR REPLACE TABLE o(d DATE, n TINYINT)
INSERT INTO o(n) SELECT DISTINCT a FROM ({inner}) WHERE id < 3
= [(2,)]
? len(failed) == 1
~ PartialResultWarning .
FROM o ORDER BY ALL  = [(None, 7), (None, None)]
CREATE OR REPLACE TABLE o(d DATE, n TINYINT)
INSERT INTO o SELECT {a}, 1 FROM t WHERE id = 3 UNION SELECT {a}, 1 FROM t WHERE id = 2
= [(2,)]
? len(failed) == 1
~ PartialResultWarning .
FROM o ORDER BY ALL  = [(date(2024, 1, 3), 1), (None, 1)]

-- the row error of a column says what was read where
{w} SELECT a::DATE, upper(a)::INT FROM z WHERE id = 2
~ PartialResultWarning .
? errors[0].error.startswith("The answer is 'abc'; the query needs a value of type DATE here")
? errors[1].error.startswith("upper(a) is 'ABC'; the query needs a number (INTEGER) here")
? [(one.stage, one.row, one.text, dict(one.inputs)) for one in errors[:1]] == [("outer query", 0,
  "abc", {})]
{w} SELECT a::DATE FROM z WHERE id = 2
% on_error="raise"
! RequestError outer query: The answer is 'abc'

-- columns that are no answers fail as ever, and what joins on a cast still ends the query
{w} SELECT k::INT FROM z  ! QueryError 'x'
SELECT (k || a)::INT, y.k::INT FROM ({inner}) z JOIN t y USING (id, k)  ! QueryError 'x'
{w} SELECT z.id FROM z JOIN t ON z.a::INT = t.n WHERE z.id = 2  ! LateQueryError abc
