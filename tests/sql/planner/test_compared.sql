-- what is only compared with texts says so
SELECT id FROM films WHERE LLM('up', title) = 'DUNE'
? {one.sampling for one in asked} == {Compared(texts=("DUNE",))}
SELECT id FROM films WHERE 'DUNE' = LLM('up', title)
? {one.sampling for one in asked} == {Compared(texts=("DUNE",))}
SELECT id FROM films WHERE LLM('up', title) <> 'DUNE'
? {one.sampling for one in asked} == {Compared(texts=("DUNE",))}
SELECT id FROM films WHERE LLM('up', title) IN ('ALIEN', 'DUNE')
? {one.sampling for one in asked} == {Compared(texts=("ALIEN", "DUNE"))}
SELECT id FROM films WHERE NOT (LLM('up', title)) IN ('ALIEN')
? {one.sampling for one in asked} == {Compared(texts=("ALIEN",))}
SELECT id FROM films WHERE LLM('up', title) = 'A' OR LLM('up', title) = 'B'
? {one.sampling for one in asked} == {Compared(texts=("A", "B"))}
SELECT count(*) FROM films GROUP BY LLM('up', title) = 'DUNE'
? {one.sampling for one in asked} == {Compared(texts=("DUNE",))}
SELECT LLM('up', title) = 'DUNE' FROM films
? {one.sampling for one in asked} == {Compared(texts=("DUNE",))}
SELECT id FROM films WHERE LLM('up', title) != ''
? {one.sampling for one in asked} == {Compared(texts=("",))}
SELECT sum((LLM('up', title) = 'DUNE')::int) FROM films
? {one.sampling for one in asked} == {Compared(texts=("DUNE",))}

-- what some place reads is asked for whole
SELECT LLM('up', title) FROM films  ? {one.sampling for one in asked} == {Sampling()}
SELECT LLM('up', title) FROM films WHERE LLM('up', title) = 'DUNE'
? {one.sampling for one in asked} == {Sampling()}
SELECT id FROM films WHERE LLM('up', title) = 'DUNE' ORDER BY LLM('up', title)
? {one.sampling for one in asked} == {Sampling()}
SELECT id FROM films WHERE LLM('up', title) = genre
? {one.sampling for one in asked} == {Sampling()}
SELECT id FROM films WHERE LLM('up', title) LIKE 'D%'
? {one.sampling for one in asked} == {Sampling()}
SELECT id FROM films WHERE LLM('up', title) > 'D'  ? {one.sampling for one in asked} == {Sampling()}
SELECT id FROM films WHERE lower(LLM('up', title)) = 'dune'
? {one.sampling for one in asked} == {Sampling()}
SELECT id FROM films WHERE LLM('up', title) COLLATE nocase = 'dune'
? {one.sampling for one in asked} == {Sampling()}
SELECT id FROM films WHERE LLM('up', title) IN (SELECT upper(genre) FROM films)
? {one.sampling for one in asked} == {Sampling()}
SELECT id FROM films WHERE LLM('len', title) = 4  ? {one.sampling for one in asked} == {Sampling()}
SELECT id FROM films WHERE LLM('len', title) IN (4, 5)
? {one.sampling for one in asked} == {Sampling()}
SELECT id FROM films WHERE LLM('up', title) IS NOT NULL
? {one.sampling for one in asked} == {Sampling()}

-- methods and arrows read whole answers
SELECT LLM('up', t).lower() FROM (SELECT title AS t FROM films) WHERE LLM('up', t) <> 'A'
? {one.sampling for one in asked if one.query == "up"} == {Sampling()}
SELECT count(*) FROM (SELECT title AS t FROM films) WHERE LLM('up', t) <> 'A' AND LLM('up',
  t).contains('UN')
? {one.sampling for one in asked if one.query == "up"} == {Sampling()}
SELECT t FROM (SELECT title AS t FROM films) WHERE LLM('up', t) <> 'A' ORDER BY LLM('up',
  t).length(), t
? {one.sampling for one in asked if one.query == "up"} == {Sampling()}
SELECT LLM('len', LLM('up', t).lower()) FROM (SELECT title AS t FROM films) WHERE LLM('up', t) <>
  'A'
? {one.sampling for one in asked if one.query == "up"} == {Sampling()}
SELECT coalesce(LLM('up', t) -> '$.A', '0'), LLM('up', t) = 'A' FROM (SELECT '{"A": ' || id || '}'
  AS t FROM films)
? {one.sampling for one in asked if one.query == "up"} == {Sampling()}
SELECT date_trunc(LLM('up', t), DATE '2020-05-17'), LLM('up', t) = 'A' FROM (SELECT 'month' AS t)
? {one.sampling for one in asked if one.query == "up"} == {Sampling()}

-- an answer that is a field is read
SELECT id FROM films WHERE LLM('yes', LLM('up', title)) = 'Yes'
  AND LLM('No', title, labels := ['Yes', 'No']) = 'No'
? {one.query: one.sampling for one in asked} == {"up": Sampling(), "yes": Compared(texts=("Yes",)),
  "No": Sampling(labels=("Yes", "No"))}

-- an answer that is too long is not the text
SELECT id FROM films WHERE id IN (1, 6) AND LLM('q', title) <> 'Yes'
< lambda query, fields: (Answer("Dune is", Finish.DECIDED, output_tokens=2)
  if fields["title"] == "Dune" else Answer("Alien is a", Finish.LENGTH, output_tokens=3))
~ PartialResultWarning 1 LLM value is missing
= [(6,)]

-- a text that is no label is refused
SELECT * FROM (SELECT LLM('yes', title, labels := ['Yes', 'No']) AS k FROM films) WHERE k = 'yes'
! QueryError compared with 'yes', but .* Did you mean 'Yes'\?
