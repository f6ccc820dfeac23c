-- each row finds its passages best first
SELECT passages('docs', question, 2) FROM q ORDER BY id
= [(["Rome is in Italy.", "Paris is in France."],), (["Dogs bark."],), (None,), ([],)]
SELECT len(passages('docs', 'in on', 1000))  = [(3,)]

-- search gives the same texts with their scores
SELECT passages('docs', question), AI_SEARCH('docs', question) FROM q WHERE question IS NOT NULL
? all([hit["text"] for hit in hits] == texts for texts, hits in rows)
? all(0 < hit["score"] <= 1.000001 for _, hits in rows for hit in hits)
? all(hits == sorted(hits, key=lambda hit: -hit["score"]) for _, hits in rows)

-- works wherever a function can stand
SELECT passages('DOCS', 'bark', 1, 'TEXT')  = [(['Dogs bark.'],)]
SELECT passages('docs', 'bark', k) FROM (VALUES (1)) AS t(k)  = [(['Dogs bark.'],)]
SELECT p FROM (SELECT passages('docs', 'bark', 1) AS p)  = [(['Dogs bark.'],)]
WITH w AS (SELECT passages('docs', 'bark', 1) AS p) SELECT p FROM w  = [(['Dogs bark.'],)]
CREATE VIEW v0 AS SELECT passages('docs', 'bark', 1) AS p; SELECT p FROM v0  = [(['Dogs bark.'],)]
CREATE MACRO m(x) AS passages('docs', x, 1); SELECT m('bark')  = [(['Dogs bark.'],)]
CREATE MACRO n(x) AS passages('docs', x, 1); CREATE VIEW v1 AS SELECT n('bark') AS p; SELECT p FROM
  v1
= [(['Dogs bark.'],)]
PREPARE p AS SELECT passages('docs', ?, 1)  ! UnsupportedQueryError values beside it
CREATE TABLE t AS SELECT passages('docs', 'bark', 1) AS p; SELECT p FROM t  = [(['Dogs bark.'],)]
SELECT passages('docs', ?, 1)
$ ["bark"]
= [(["Dogs bark."],)]

-- a table written in the same text is searched as it then is
CREATE TABLE new AS SELECT 'hello world' AS t; SELECT passages('new', 'hello')
= [(["hello world"],)]
INSERT INTO new VALUES ('hello again'); SELECT len(passages('new', 'hello'))  = [(2,)]

-- a changed table is searched as it is now
CREATE TABLE t AS SELECT 'one fish' AS a
SELECT passages('t', 'fish')  = [(["one fish"],)]
UPDATE t SET a = 'two fish'
SELECT passages('t', 'fish')  = [(["two fish"],)]
DROP TABLE t; CREATE TABLE t AS SELECT 1 AS a, 'red fish' AS b
SELECT passages('t', 'fish')  = [(["red fish"],)]

-- tables of any name are found
CREATE SCHEMA s
CREATE TABLE "odd name" AS SELECT 'fish' AS "my col"
SELECT passages('odd name', 'fish', 1, 'my col')  = [(["fish"],)]
CREATE TABLE "with.dot" AS SELECT 'fish' AS "my col"
SELECT passages('with.dot', 'fish', 1, 'my col')  = [(["fish"],)]
CREATE TABLE "qu""ote" AS SELECT 'fish' AS "my col"
SELECT passages('qu"ote', 'fish', 1, 'my col')  = [(["fish"],)]
CREATE TABLE s.inner_table AS SELECT 'fish' AS "my col"
SELECT passages('s.inner_table', 'fish', 1, 'my col')  = [(["fish"],)]

-- found texts are rows of FROM
FROM AI_SEARCH('docs', 'is in', 1)
? rows == con.sql("SELECT hit.text, hit.score FROM unnest(AI_SEARCH('docs', 'is in', 1)) AS f(hit)"
  ).fetchall() != []
SELECT passage FROM passages('docs', 'bark')  = [("Dogs bark.",)]
SELECT id, passage FROM q, passages('docs', question, 1) ORDER BY id
= [(1, "Rome is in Italy."), (2, "Dogs bark.")]
SELECT LLM('up', s.text) FROM q, AI_SEARCH('docs', question, 1) AS s WHERE id = 2
= [("DOGS BARK.",)]

-- a plain view, a column of numbers and an empty table can be searched
CREATE VIEW v AS SELECT 1977 AS year UNION ALL SELECT 1980
SELECT passages('v', 'of 1980', 1, 'year')  = [(["1980"],)]
CREATE TABLE none (a VARCHAR)
SELECT passages('none', 'fish'), AI_SEARCH('none', 'fish')  = [([], [])]

-- near duplicates become the first of them
CREATE TABLE firms AS SELECT unnest(['Acme Corp', 'Globex', 'ACME corp.', NULL, 'Globex Inc.']) AS
  name
SELECT name, AI_DEDUP('firms', name, 0.7) FROM firms
? dict(rows) == {"Acme Corp": "Acme Corp", "Globex": "Globex", "ACME corp.": "Acme Corp",
  None: None, "Globex Inc.": "Globex"}
SELECT AI_DEDUP('firms', 'acme CORP', 0.7), AI_DEDUP('firms', 'new', 0.7)  = [("Acme Corp", "new")]
SELECT count(DISTINCT AI_DEDUP('firms', name, 1.0)) FROM firms  = [(4,)]

-- what cannot be searched is refused with a remedy
CREATE TABLE wide AS SELECT 'x' AS a, 'y' AS b; CREATE TABLE numbers AS SELECT 1 AS n;
  CREATE VIEW asking AS SELECT LLM('up', text) AS t FROM docs
SELECT passages(table_name, 'x') FROM (VALUES ('docs')) AS t(table_name)
! QueryError must be written as a text
SELECT passages('doc', 'x')  ! QueryError table 'doc' to search does not.*Did you mean 'docs'
SELECT passages('docs', 'x', 0)  ! QueryError number of texts to find is 0
SELECT passages('docs', 'x', 'two')  ! QueryError number of texts to find is 'two'
SELECT passages('docs')  ! QueryError passages was called with too few or too many arguments
SELECT passages('wide', 'x')  ! QueryError 2 columns of text \(a, b\).*'x', 5, 'a'|question, 5
SELECT passages('numbers', 'x')  ! QueryError no column of text
SELECT AI_DEDUP('docs', 'x', 1.5)  ! QueryError threshold is 1.5
SELECT passages('asking', 'x')  ! QueryError view with LLM calls
SELECT passages()  ! QueryError many arguments. Write passages\('table'
SELECT passages(docs, question) FROM q  ! QueryError must be a text.*passages\('docs', question
SELECT AI_DEDUP(docs, 'x') FROM docs  ! QueryError must be a text.*AI_DEDUP\('table', text
SELECT passages('docs', question, 'text') FROM q  ! QueryError question, 5, 'text'
SELECT AI_DEDUP('docs', 'x', 'text')  ! QueryError threshold is 'text'.*text, 0.9, 'text'
SELECT AI_SEARCH('docs', 'x', k := 1)
! QueryError no named arguments; write the number third: AI_SEARCH\('docs', question, 1\)
SELECT AI_DEDUP('docs', 0.7, question) FROM q
! QueryError threshold third: AI_DEDUP\('docs', question, 0.7\)
SELECT AI_DEDUP(question, 0.7) FROM q
! QueryError threshold third: AI_DEDUP\('table', question, 0.7\)
WITH d AS (SELECT text FROM docs) SELECT AI_SEARCH('d', 'x', 2)
! QueryError A WITH entry cannot be searched; save it as a table or view first
SELECT passages('docs', 'x', 2::VARCHAR)  ! QueryError number of texts to find is '2'
SELECT AI_DEDUP('wide', 'x')  ! QueryError AI_DEDUP\('wide', text, 0.9, 'a'\)
SELECT AI_SEARCH('wide', 'x')  ! QueryError AI_SEARCH\('wide', question, 5, 'a'\)
SELECT passages('wide.b', 'x')  ! QueryError apart: passages\('wide', question, 5, 'b'\)
SELECT passages('docs', id) FROM q  ! QueryError is of type int32.*question::VARCHAR
SELECT passages('numbers', 'x', 1, 'n')  ! QueryError No text of 'numbers' has a word
FROM AI_SIMILARITY('a', 'b')  ! QueryError cannot stand in FROM. Write SELECT AI_SIM
SELECT passages('docs', 'x', 3, 'nope')  ! UnknownColumnError 'nope' is not in 'docs'. Columns: text

@p passages('docs', question, 1)
-- what searches is computed before calls like any function
SELECT * FROM (SELECT id, LLM('up', {p}, question) AS a FROM q) WHERE id = 1  # 1
WITH w AS (SELECT id, {p} AS p, LLM('up', question) AS a FROM q) SELECT a FROM w WHERE len(p) > 9
# 0
SELECT coalesce({p}[1], LLM('up', question)) FROM q  # 1
SELECT id FROM q WHERE LLM('yes', question) = 'Yes' AND len({p}) > 0  # 2
SELECT count(*) FROM q o WHERE EXISTS (SELECT 1 FROM q i WHERE i.id = o.id AND LLM('up',
  passages('docs', o.question), i.question) > '')
# 3
SELECT count(*) FROM q LEFT JOIN docs ON q.id = 1 AND LLM('up', passages('docs', q.question),
  docs.text) > ''
# 6

-- what searches is computed before calls in other queries (long)
SELECT count(*) FROM (SELECT id, LLM('up', {p}, question) FROM q)  # 0
SELECT CASE WHEN len({p}) > 9 THEN LLM('up', question) END FROM q  # 0
SELECT id FROM q WHERE len({p}) > 0 OR LLM('yes', question) = 'Yes'  # 1
SELECT id FROM q ORDER BY row_number() OVER (ORDER BY {p}), LLM('up', id) LIMIT 1  # 4
SELECT count(*) FROM q o WHERE EXISTS (SELECT 1 FROM docs i WHERE list_contains(passages('docs',
  o.question), i.text) AND LLM('up', i.text) > '')
# 2
SELECT count(*) FROM q LEFT JOIN docs ON list_contains(passages('docs', question), docs.text) AND
  LLM('up', docs.text) > ''
# 3

-- similarity is the cosine of the vectors
@cosine rows[0][0] == approx(sum(x * y for x, y in zip(rows[0][1], rows[0][2], strict=True)), abs=1e-5)
SELECT AI_SIMILARITY('Acme Corp', 'ACME corp.'), AI_EMBED('Acme Corp'), AI_EMBED('ACME corp.')
? {cosine}
SELECT AI_SIMILARITY('one', 'two'), AI_EMBED('one'), AI_EMBED('two')
? {cosine}
SELECT AI_SIMILARITY('same', 'same'), AI_EMBED('same'), AI_EMBED('same')
? {cosine}
SELECT AI_SIMILARITY('', 'x'), AI_EMBED(''), AI_EMBED('x')
? {cosine}
SELECT AI_SIMILARITY('ü', 'Ü'), AI_EMBED('ü'), AI_EMBED('Ü')
? {cosine}
SELECT AI_SIMILARITY(NULL, 'a'), AI_EMBED(NULL)  = [(None, None)]
SELECT AI_SIMILARITY('', ''), AI_SIMILARITY(' ', ' '), AI_SIMILARITY('', ' ')  = [(1.0, 1.0, 0.0)]

-- a join asks only about near pairs, and EXPLAIN counts them
CREATE TABLE a AS SELECT unnest(['Acme Corp', 'Globex', 'Initech']) AS n;
  CREATE TABLE b AS SELECT unnest(['ACME corp.', 'Globex Inc.', 'Hooli']) AS n
SELECT a.n, b.n FROM a JOIN b ON AI_SIMILARITY(a.n, b.n) > 0.6 ORDER BY ALL
= [("Acme Corp", "ACME corp."), ("Globex", "Globex Inc.")]
SELECT a.n FROM a JOIN b ON AI_SIMILARITY(a.n, b.n) > 0.6 AND LLM('up', a.n, b.n) LIKE '%E%'  # 2
EXPLAIN SELECT * FROM a JOIN b ON AI_SIMILARITY(a.n, b.n) > 0.6 AND AI_FILTER('q', a.n, b.n)
? told[0]["rows"] == 2
EXPLAIN SELECT * FROM a, b WHERE a.n > 'B' AND AI_SIMILARITY(a.n, b.n) > 0.6
  AND AI_FILTER('q', a.n, b.n)
? told[0]["rows"] == 1

-- nearest gives k pairs for each distinct text
SELECT unnest(AI_NEAREST(['Acme', NULL, 'Acme', 'Globex'], ['globex inc', 'acme corp', 'hooli'], 2),
  recursive := true)
? [row[0] for row in rows] == ["Acme", "Acme", "Globex", "Globex"]
? (rows[0][1], rows[2][1]) == ("acme corp", "globex inc")
SELECT AI_NEAREST([], ['a']), AI_NEAREST(['a'], [])  = [([], [])]

-- duplicates are grouped under the first
SELECT unnest(AI_DUPLICATES(list(n), 0.7), recursive := true) FROM (VALUES ('Acme'), ('acme'),
  ('Hooli'), ('ACME')) AS t(n)
= [("Acme", "Acme"), ("acme", "Acme"), ("Hooli", "Hooli"), ("ACME", "Acme")]
SELECT AI_DUPLICATES([]::VARCHAR[])  = [([],)]

-- wrong arguments are refused
:: SELECT {}
AI_SIMILARITY('a')  ! QueryError called with too few or too many arguments. Write AI_SIMILARITY
AI_NEAREST('a', 'b')  ! QueryError takes a list of texts
AI_DUPLICATES(['a'], 0)  ! QueryError threshold is 0
AI_NEAREST(['a'], ['b'], 1.5)  ! QueryError number of texts to find is 1.5
