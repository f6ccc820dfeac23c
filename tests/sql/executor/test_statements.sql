-- a prompt is the system's text, the query and the fields
SELECT LLM('Is it good?', title, stars, seen) FROM films WHERE id = 1
? first.prompt[0] == Span(SYSTEM, Role.SYSTEM)
? "".join(str(span.content) for span in first.prompt[1:]) == "Answer the below query:\nIs it good?"
  "\n\nGiven the following data:\n{\n\"title\": \"Alien\",\n\"stars\": 4.5,\n\"seen\": true\n}"

-- equal pieces of prompts are one object
SELECT LLM('up', genre, id) FROM films WHERE genre = 'horror'
% order="original"
? asked[0].prompt[0] is asked[1].prompt[0]
? asked[0].prompt[2] is asked[1].prompt[2]

-- values of every type are readable
SELECT LLM('x', t.*) FROM (SELECT NULL AS nothing, true AS yes, 7 AS whole,
  170141183460469231731687303715884105727 AS huge, 0.1::DOUBLE AS real, 0.1::FLOAT AS short,
  'nan'::DOUBLE AS no_number, 1.50::DECIMAL(5, 2) AS price, DATE '2024-02-29' AS day,
  TIMESTAMP '2024-02-29 12:30:00' AS moment, [1, 2] AS list, {'a': 'x"y', 'b': NULL} AS struct,
  '{"j": [1]}'::JSON AS json, 'ab'::BLOB AS bytes,
  '00000000-0000-0000-0000-000000000001'::UUID AS uuid, MAP {'k': 1} AS map,
  'small'::ENUM('small', 'big') AS size, INTERVAL 3 DAY AS span) t
? fields == {"nothing": None, "yes": True, "whole": 7, "huge": 2**127 - 1, "real": 0.1,
  "short": 0.1, "no_number": "nan", "price": "1.50", "day": "2024-02-29",
  "moment": "2024-02-29 12:30:00", "list": [1, 2], "struct": {"a": 'x"y', "b": None},
  "json": {"j": [1]}, "bytes": "ab", "uuid": "00000000-0000-0000-0000-000000000001",
  "map": {"k": 1}, "size": "small", "span": "3 days"}

-- every form of string literal is a prompt
SELECT LLM('it''s'), LLM(e'a\nb\''), LLM($$it's$$), LLM('one ' || 'two'), LLM(('in' || (' parens'))),
  LLM('no \n escape')
= [("it's", "a\nb'", "it's", "one two", "in parens", r"no \n escape")]

-- options become sampling
SELECT LLM('x', id, max_tokens := 16, temperature => 0.5, top_p := 1, top_k := 5, seed := -3,
  stop := 'END', labels := ['Yes', 'No']), LLM('y', id), LLM('Rate', id, labels := [1, 2, -3])
  FROM films LIMIT 1
% max_tokens=5
< lambda query, fields: "-3" if query == "Rate" else "Yes"
? {one.query: one.sampling for one in asked} == {"y": Sampling(max_tokens=5),
  "Rate": Sampling(max_tokens=5, labels=("1", "2", "-3")), "x": Sampling(max_tokens=16, top_p=1,
  temperature=0.5, top_k=5, seed=-3, stop=("END",), labels=("Yes", "No"))}

-- a malformed call says what is expected
:: SELECT {} FROM films
LLM()  ! QueryError (?i)LLM\(\) has no prompt
LLM(max_tokens := 3)  ! QueryError has no prompt
LLM("Is it good?", id)  ! QueryError single quotes
LLM(3, id)  ! QueryError it must be text
LLM(['a'], id)  ! QueryError it must be text
LLM('x', id, max_token := 3)  ! QueryError Did you mean 'max_tokens'
LLM('x', id, max_tokens := 'many')  ! QueryError expected a whole number
LLM('x', id, max_tokens := 1.5)  ! QueryError expected a whole number
LLM('x', id, labels := [1.5, 2])  ! QueryError expected a string or a list of strings
LLM('x', id, temperature := id)  ! QueryError expected a number
LLM('x', id, labels := [])  ! QueryError Give at least one text
LLM('x', id, labels := ['a'], labels := ['b'])  ! QueryError sets labels twice
LLM('x', id, max_tokens := 0)  ! ConfigError max_tokens is 0

-- equal inputs are asked once
SELECT LLM('up', title, genre) FROM films
? len(rows) == 6
# 5
? (stages[0].rows, result.report.calls) == (6, 5)

-- inputs that send the same text are one call
:: SELECT LLM('up', v, nulls := 'ask'), v FROM (SELECT unnest([{}]) AS v)
NULL::JSON, 'null', ' null '  # 1
? len(rows) == 3
'[1]'::JSON, '[1]', '[2]'  # 2
? len(rows) == 3
NULL::VARCHAR, '', 'null'  # 3
? len({str(one.prompt) for one in asked}) == 3
NULL::VARIANT, 'null'::JSON::VARIANT, 'null'::VARIANT  # 2
? len(rows) == 3
[NULL], NULL, ['']  # 3
? len({str(one.prompt) for one in asked}) == 3
'nan'::DOUBLE, 'nan', NULL  # 2
? len(rows) == 3

-- EXPLAIN counts them so, too
:: EXPLAIN SELECT LLM('up', v, nulls := 'ask') FROM (SELECT unnest([{}]) AS v)
NULL::JSON, 'null', ' null '
? told[0]["calls"] == 1
'[1]'::JSON, '[1]', '[2]'
? told[0]["calls"] == 2
NULL::VARIANT, 'null'::JSON::VARIANT, 'null'::VARIANT
? told[0]["calls"] == 2
[NULL], NULL, ['']
? told[0]["calls"] == 3
'nan'::DOUBLE, 'nan', NULL
? told[0]["calls"] == 2

-- a call in several clauses is asked once
SELECT LLM('up', title), upper(llm('up', films.TITLE)) FROM films WHERE LLM('up', title) > 'B'
  AND id > 2 ORDER BY LLM('up', title)
? sorted(one.fields["title"] for one in asked) == ["Alien", "Brazil", "Dune"]
SELECT LLM('Say hi'), LLM('len', id), LLM('len', id) + 1 FROM films WHERE id < 3
= [("Say hi", "1", 2.0)] * 2
? queries == ["Say hi", "len", "len"]

-- as few calls as possible go in the cheapest order
SELECT id FROM films WHERE LLM('yes', title) = 'Yes' AND genre = 'drama' AND seen  = [(6,)]
? queries == ["yes"]
SELECT LLM('len', id) + 0 FROM films WHERE LLM('up', title, genre) != ''
  AND LLM('yes', genre) = 'No'
? sorted(rows) == sorted(reference("SELECT LLM('len', id) FROM films WHERE LLM('up', title, genre)"
  "!= '' AND LLM('yes', genre) = 'No'"))
? queries == ["yes"] * 3 + ["up"] * 2 + ["len"] * 2
SELECT LLM('up', id), upper(title) AS t FROM films ORDER BY t DESC NULLS LAST, 2 LIMIT 2
= [("6", "DUNE"), ("3", "BRAZIL")]
# 2
SELECT id FROM films ORDER BY LLM('up', id) LIMIT 1  = [(1,)]
# 6
SELECT LLM('up', f.title) FROM films f JOIN reviews r ON f.id = r.film
? sorted(rows) == [("ALIEN",), ("ALIEN",), ("AMELIE",), ("DUNE",)]
# 3
SELECT id FROM films WHERE stars > 3 OR LLM('len', id) = 1 ORDER BY id
= [(1,), (2,), (3,), (4,), (5,), (6,)]
? queries == ["len"] * 2
SELECT count(*) FROM films WHERE title = 'LLM('  # 0

-- a nested call gets the inner answer by name
SELECT LLM('len', LLM('up', title), id), LLM('up', title) AS loud, LLM('len', loud) FROM films
  WHERE id = 1
# 3
? fields == {"title": "Alien"}
? {"llm_2": "ALIEN", "id": 1} in [one.fields for one in asked]
? {"loud": "ALIEN"} in [one.fields for one in asked]

-- rows without an inner answer are not asked
SELECT LLM('len', LLM('up', title)) FROM films WHERE id >= 4
< fails_for_dune
~ PartialResultWarning 1 LLM value is missing
= [("5",), (None,), (None,)]
# 3

-- a call on aggregates is one per group
SELECT genre, LLM('up', genre, count(*), 'n ' || sum(id)) FROM films GROUP BY genre  # 3
? {"genre": "comedy", "count": 2, "sum_id": "n 5"} in [one.fields for one in asked]

-- rows that no branch reads are not asked, and a condition by chance guards no call
SELECT CASE WHEN s = '12' THEN LLM('up', CAST(s AS INT)) END FROM (VALUES ('12'), ('a')) v(s)
? [one.fields for one in asked] == [{"s": 12}]
SELECT CASE WHEN random() < 0.5 THEN LLM('up', id) ELSE 'x' END FROM films  # 6

-- a field that is a query with a call is named by what it computes
EXPLAIN SELECT LLM('up', (SELECT max(LLM('up', text)) FROM reviews)) FROM films LIMIT 1
? told[-1]["fields"] == "max_llm"
SELECT LLM('up', (SELECT max(LLM('up', text)) FROM reviews)) FROM films LIMIT 1
? asked[-1].fields == {"max_llm": "SWEET"}

-- a failed request is null and listed
SELECT id, LLM('up', title) FROM films WHERE seen ORDER BY id
< fails_for_dune
~ PartialResultWarning 1 LLM value is missing.*out of spice
= [(1, "ALIEN"), (3, "BRAZIL"), (6, None)]
? [(one.stage, one.row, one.inputs, one.error) for one in errors] == [("projection 1", 2,
  {"title": "Dune"}, "out of spice")]
? result.report.errors == 1

-- a prompt that is too long has a remedy
SELECT LLM('up', title) FROM films WHERE id = 1
< failing(str(PromptTooLongError(5000, 2048, "the model's context")))
~ PartialResultWarning e\.g\. with substring\(column, 1, 2000\)\.$

-- a row that is not judged is left out
SELECT id, LLM('up', title, genre) FROM films WHERE seen AND LLM('len', id) = '1'
  AND LLM('up', title) != 'ALIEN' ORDER BY id
< fails_for_dune
~ PartialResultWarning .
= [(3, "COMEDY|BRAZIL")]
? [(one.stage, one.row) for one in errors] == [("filter 2", 2)]

-- an answer that was cut is no value
SELECT LLM('up', title) FROM films WHERE id = 1
< lambda query, fields: Answer("Al", Finish.LENGTH, output_tokens=2)
~ PartialResultWarning cut off after 2 tokens.*Raise max_tokens
= [(None,)]
? [(one.text, one.finish, one.attempts) for one in errors] == [("Al", Finish.LENGTH, 1)]

-- what is no number is an error
@numbers {"1": "4", "2": " -1.5\n", "3": "1e2", "4": ".5", "5": "-0", "6": "4"}
@wrong {"1": "good", "2": "4/5", "3": "", "4": "nan", "5": "inf", "6": "4"}
@more {"1": "1_000", "2": "4 stars", "3": "0x1", "4": "٤", "5": "1e", "6": "4"}
SELECT LLM('Rate', id) * 1 FROM films ORDER BY id
< lambda query, fields: {numbers}[str(fields["id"])]
= [(4,), (-1.5,), (100,), (0.5,), (0,), (4,)]
SELECT avg(LLM('Rate', id)), count(*) FROM films
< lambda query, fields: {wrong}[str(fields["id"])]
~ PartialResultWarning needs a number
= [(4.0, 6)]
? all(str(one.error).startswith(f"The answer is {text!r}") for one, text in zip(errors,
  list({wrong}.values())[:5], strict=True))
SELECT avg(LLM('Rate', id)), count(*) FROM films
< lambda query, fields: {more}[str(fields["id"])]
~ PartialResultWarning needs a number
= [(4.0, 6)]
? all(str(one.error).startswith(f"The answer is {text!r}") for one, text in zip(errors,
  list({more}.values())[:5], strict=True))

-- on_error="raise" stops at the first failure
SELECT LLM('up', title) FROM films ORDER BY id DESC
% on_error="raise"
< fails_for_dune
! RequestError projection 1 for title = 'Dune': out of spice
SELECT avg(LLM('Rate', title)) FROM films
% on_error="raise"
< lambda query, fields: query
! RequestError aggregate 1 for title = 'Alien': The answer is 'Rate'; the query needs
SELECT LLM('up', repeat('x', 99), title, id, genre, seen) FROM films WHERE id = 5
% on_error="raise"
< failing("no")
! RequestError ^projection 1 for
? f"= '{'x' * 57}...', title = NULL, id = '5' and 2 more: no" in str(error)
SELECT count(*) FROM films  = [(6,)]

-- the warning counts in words that agree
SELECT LLM('up', id) FROM films
< failing("no")
~ PartialResultWarning ^6 LLM values are missing.* The first, in pro
? repr(result).endswith("[6 rows, 6 LLM values are missing]")
SELECT LLM('up', id) FROM films WHERE id = 1
~ PartialResultWarning ^1 LLM value is missing.* In projection 1: no
? repr(result).endswith("[1 row, 1 LLM value is missing]")

-- null cells and broken characters are text
SELECT LLM('up', title, tags, nulls := 'ask'), LLM('half') FROM films WHERE id = 5
< lambda query, fields: "a\ud83c" if query == "half" else str(fields)
= [("{'title': None, 'tags': None}", "a\ufffd")]

-- reasons are those of the cells that read a failed answer
SELECT LLM('len', LLM('up', title)) FROM films WHERE id > 3
< fails_for_dune
~ PartialResultWarning .
? result.reasons == {(2, 0): "out of spice"}
SELECT title, LLM('up', title) FROM films ORDER BY ALL
~ PartialResultWarning .
? result.reasons == {(4, 1): "out of spice"}
SELECT LLM('up', title) FROM films ORDER BY id DESC LIMIT 1
~ PartialResultWarning .
? result.reasons == {(0, 0): "out of spice"}
SELECT DISTINCT LLM('up', title) FROM films
~ PartialResultWarning .
? result.reasons == {}
SELECT count(LLM('up', title)) FROM films
~ PartialResultWarning .
? result.reasons == {}
SELECT id FROM films WHERE LLM('up', title) <> 'x'
~ PartialResultWarning .
? result.reasons == {}
SELECT * FROM (SELECT LLM('up', title) FROM films)
~ PartialResultWarning .
? result.reasons == {}

-- a call with NULL in all fields gives NULL and asks nothing
SELECT id, LLM('up', title), LLM('len', title, info.year) FROM films WHERE id > 3 ORDER BY id
= [(4, "ALIEN", "10"), (5, None, None), (6, "DUNE", "9")]
# 4
? [stage.skipped for stage in stages] == [1, 1]
SELECT id FROM films WHERE LLM('yes', title) = 'Yes' OR id = 5
= [(2,), (3,), (5,), (6,)]
# 4
SELECT LLM('up', LLM('up', NULL)), LLM('up', ''), LLM('now'), LLM('up', 'null'::JSON), LLM('up', [NULL])
= [(None, "", "now", None, "[NONE]")]
SELECT LLM('up', title, nulls := 'ask') FROM films WHERE id = 5
= [("NULL",)]
# 1
SELECT LLM('up', title, nulls := 'drop') FROM films  ! QueryError The nulls 'drop' is not known

-- a JSON column keeps every digit
SELECT LLM('x', j) FROM (SELECT ' {"z": 2512292042121000001.123456789}'::JSON AS j)
? '"j": {"z": 2512292042121000001.123456789}' in "".join(map(text_of, first.prompt))

-- stars and patterns beside a call and in it
SELECT * RENAME (id AS key), LLM('up', text) AS u FROM reviews WHERE id = 10
? rows == [(10, 1, "great", "GREAT")] and columns == ["key", "film", "text", "u"]
SELECT unnest({'a': LLM('up', text), 'b': {'c': id}}) FROM reviews WHERE id = 10
? rows == [("GREAT", {"c": 10})] and columns == ["a", "b"]
SELECT unnest(tags) AS e, LLM('up', e) FROM films
= DuckDB's  # 4

-- names and macros mean what they mean in DuckDB
SELECT id AS b, sum(id) AS id, LLM('now') AS c FROM films GROUP BY b HAVING id = 4
= [(4, 4, "now")]
CREATE MACRO my_list(x) AS list(x)
SELECT my_list(id) OVER (PARTITION BY film) AS l, LLM('now') AS c FROM reviews WHERE id < 12
= [([10, 11], "now")] * 2
DROP MACRO my_list

-- what stands for several expressions is refused
:: SELECT {} FROM films
LLM('up', COLUMNS('t.*'))  ! UnsupportedQueryError Name the columns
LLM('up', *COLUMNS('t.*'))  ! UnsupportedQueryError Name the columns
LLM('up', id), COLUMNS('id') + 1  ! UnsupportedQueryError Name the columns
LLM('up', id), * LIKE 't%'  ! UnsupportedQueryError Name the columns
LLM('up', id), unnest({'a': {'b': id}}, recursive := true)  ! UnsupportedQueryError Write unnest
:: SELECT LLM('up', id) FROM films {}
WHERE COLUMNS('id|stars') > 1  ! UnsupportedQueryError Name the columns
ORDER BY COLUMNS('i.*')  ! UnsupportedQueryError Name the columns

-- a WITH entry that changes a table is refused, and changes nothing
CREATE TABLE log (id INTEGER)
WITH i AS (INSERT INTO log VALUES (1) RETURNING id) SELECT id, LLM('up', id) FROM i
! UnsupportedQueryError entry 'i' changes a table
EXPLAIN WITH i AS (DELETE FROM log RETURNING id) SELECT LLM('up', id) FROM i
! UnsupportedQueryError entry 'i' changes a table
SELECT count(*) FROM log
= [(0,)]
DROP TABLE log
