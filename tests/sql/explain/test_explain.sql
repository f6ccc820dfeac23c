-- labels are suggested where answers are only compared with texts
:: EXPLAIN SELECT id FROM films WHERE {}
LLM('?', id) = 'Yes'  ? told[0]["hint"] == "add labels := ['Yes', 'No']"
'FALSE' <> (LLM('?', id))  ? told[0]["hint"] == "add labels := ['FALSE', 'TRUE']"
LLM('?', id) IN ('a', 'b')  ? told[0]["hint"] == "add labels := ['a', 'b']"
LLM('?', id) = 'it''s'  ? told[0]["hint"] == "add labels := ['it''s', ...]"
LLM('?', id) = title  ? told[0]["hint"] == None
LLM('?', id) IN (SELECT title FROM films)  ? told[0]["hint"] == None
LLM('?', id) > 'a'  ? told[0]["hint"] == None
LLM('?', id) = 3  ? told[0]["hint"] == None
LLM('?', id, temperature := 1) = 'Yes'  ? told[0]["hint"] == None
LLM('?', id, labels := ['Yes', 'No']) = 'Yes'  ? told[0]["hint"] == None

-- labels are suggested for what all places compare with
EXPLAIN SELECT CASE LLM('?', id) WHEN 'a' THEN 1 END FROM films WHERE LLM('?', id) != 'b'
? told[0]["hint"] == "add labels := ['a', 'b']"
EXPLAIN SELECT LLM('?', id) FROM films WHERE LLM('?', id) = 'Yes'
? told[0]["hint"] is None
EXPLAIN SELECT LLM('!', LLM('?', id)) FROM films WHERE LLM('?', id) = 'Yes'
? told[0]["hint"] is None
EXPLAIN SELECT count(*) FILTER (WHERE LLM('?', id) = 'a'), count(*) FILTER (WHERE LLM('?', id) = 'b')
  FROM films
? told[0]["hint"] == "add labels := ['a', 'b']"

-- a filter and a projection are told in the order in which they run
EXPLAIN SELECT LLM('up', title, genre) FROM films WHERE LLM('yes', title) = 'Yes' AND stars > 3
? told == [{"model": "fake", "rows": 4, "calls": 3, "from_ledger": 0, "counted_by": "tokenizer", "hit_rate": None,
  "refused": 0, "order": "tree", "usd": None, "note": None} | one for one in (
  {"stage": "filter 1", "prompt": "yes", "fields": "title", "counts": "exact",
  "prompt_tokens": 698, "answers": "decoded until it decides, at most 256 tokens",
  "seconds": 0.698, "hint": "add labels := ['Yes', 'No']"},
  {"stage": "projection 1", "prompt": "up", "fields": "title, genre", "counts": "at most",
  "prompt_tokens": 752, "answers": "decoded, at most 256 tokens", "seconds": 0.752, "hint": None})]

-- more than one filter and a nested call are told at most
EXPLAIN SELECT LLM('len', LLM('up', title)) FROM films WHERE LLM('yes', title) = 'Yes'
  AND LLM('up', id) > '2'
? [(one["stage"], one["rows"], one["calls"], one["counts"], one["prompt_tokens"]) for one in told] == [
  ("filter 1", 6, 4, "exact", 929), ("filter 2", 6, 6, "at most", 1332),
  ("projection 1", 6, 4, "at most", 925), ("projection 2", 6, 5, "at most", None)]
? [one["fields"] for one in told] == ["title", "id", "title", "llm_2"]

-- what cannot be known before the run is null
EXPLAIN SELECT LLM('up', id) FROM films ANTI JOIN (FROM films WHERE LLM('yes', title) = 'Yes')
  USING (id)
? {told[-1][name] for name in ("rows", "calls", "from_ledger", "counts", "prompt_tokens",
  "counted_by", "seconds")} == {None}
? told[-1]["stage"] == "projection 1"

-- how answers come about is for the backend to say
EXPLAIN SELECT LLM('up', title, labels := ['Yes', 'No']),
  LLM('up', title, labels := ['Yes', 'No'], temperature := 1), LLM('up', title, max_tokens := 1),
  LLM('up', title, max_tokens := 8),
  LLM('up', title, output := 'INTEGER', max_tokens := 8, retry := true) FROM films
? [one["answers"] for one in told] == ["one forward pass, 2 labels", "decoded, one of 2 labels",
  "one forward pass, 1 token", "decoded, at most 8 tokens",
  "decoded, at most 8 tokens, and once more if invalid"]

-- of very many prompts a sample is counted
SELECT LLM('up', i + 10000) FROM range(10000) r(i)
? stages[0].prompt_tokens == con.explain("SELECT LLM('up', i + 10000) FROM range(10000) r(i)"
  ).calls[0].prompt_tokens
EXPLAIN SELECT LLM('up', i + 10000) FROM range(10000) r(i)
? (told[0]["calls"], told[0]["counted_by"]) == (10_000, "sample")

-- explain is for one statement with calls
explain SELECT LLM('up', id) FROM films
? result.arrow().schema == SCHEMA
/* why */ EXPLAIN/* */SELECT LLM('up', id) FROM films
? result.arrow().schema == SCHEMA
EXPLAIN SELECT 'LLM(' FROM films
? columns == ["explain_key", "explain_value"]
EXPLAIN ANALYZE SELECT 1 AS llm
? columns == ["explain_key", "explain_value"]
EXPLAIN SELECT 1; DROP TABLE films  ! QueryError stands among 2 statements
EXPLAIN SELECT LLM('up', id) FROM films; DROP TABLE films  ! QueryError one at a time
? "films" in con.tables()

-- what depends on answers is told at most; a cut without calls is exact
@counts [(one["prompt"], one["rows"], one["calls"], one["counts"]) for one in told]
EXPLAIN SELECT LLM('up', title) FROM films WHERE LLM('yes', title) = 'Yes' ORDER BY id LIMIT 2
? {counts} == [("yes", 6, 4, "at most"), ("up", 2, 2, "at most")]
EXPLAIN SELECT DISTINCT ON (genre) LLM('up', id) FROM films WHERE seen ORDER BY genre, id
? {counts} == [("up", 3, 3, "exact")]
EXPLAIN SELECT LLM('up', id) FROM films ORDER BY LLM('len', title) LIMIT 2
? {counts} == [("len", 6, 4, "exact"), ("up", 2, 2, "at most")]
EXPLAIN SELECT CASE WHEN LLM('yes', id) = 'Yes' THEN LLM('up', id) END FROM films
? {counts} == [("yes", 6, 6, "exact"), ("up", 6, 6, "at most")]

-- a limit over rows that answers choose is a bound
:: EXPLAIN SELECT LLM('up', id) FROM ({}) ORDER BY LLM('yes', title), id LIMIT 2
SELECT id, title FROM films QUALIFY AI_RANK('old', title) <= 4
? told[-1]["rows"] == 2
SELECT id, title FROM films ORDER BY AI_RANK('old', title), id LIMIT 3
? told[-1]["rows"] == 2

-- a filter over a pivot of answers is told
EXPLAIN SELECT id FROM (SELECT * FROM (SELECT id, genre, LLM('up', title) AS a FROM films)
  PIVOT (max(a) FOR genre IN ('drama', 'comedy'))) WHERE LLM('yes', drama) = 'Yes'
? [one["stage"] for one in told] == ["projection 1", "filter 1"]
