-- a rank counts from the best and takes its arguments in both orders
SELECT id, AI_RANK('sandy', title) AS r FROM films QUALIFY r <= 4 ORDER BY id
< "Is this a good match for: sandy?": by_length
= [(1, 2), (2, 4), (4, 2), (6, 1)]
SELECT title FROM films ORDER BY AI_RANK('sandy', title), id LIMIT 3
= [("Dune",), ("Alien",), ("Alien",)]
SELECT AI_RANK(title, 'sandy') FROM films QUALIFY AI_RANK(title, 'sandy') = 1  = [(1,)]
? columns == ["ai_rank(title, 'sandy')"]

-- the rows that rank first are the only ones of which more is asked
:: SELECT id, AI_RANK('sandy', title) AS r, LLM('x', id) FROM films ORDER BY {}
r, id LIMIT 3  = [(6, 1, "No"), (1, 2, "No"), (4, 2, "No")]
< "Is this a good match for: sandy?": by_length
? queries.count("x") == 3
2, id LIMIT 2  = [(6, 1, "No"), (1, 2, "No")]
? queries.count("x") == 2
r NULLS LAST, id LIMIT 3  = [(6, 1, "No"), (1, 2, "No"), (4, 2, "No")]
? queries.count("x") == 3
AI_RANK('sandy', title), id LIMIT 3  = [(6, 1, "No"), (1, 2, "No"), (4, 2, "No")]
? queries.count("x") == 3

-- where the ranks of the rows count all rows, all are asked
:: SELECT id, AI_RANK('sandy', title) AS r, LLM('x', id) FROM films ORDER BY {}
r DESC, id LIMIT 3  = [(3, 5, "No"), (2, 4, "No"), (1, 2, "No")]
< "Is this a good match for: sandy?": by_length
? queries.count("x") > 3
id, r LIMIT 3  = [(1, 2, "No"), (2, 4, "No"), (3, 5, "No")]
? queries.count("x") > 3
r, id LIMIT 3 OFFSET 1  = [(1, 2, "No"), (4, 2, "No"), (2, 4, "No")]
? queries.count("x") > 3

-- a group is asked about as a whole
:: SELECT genre, {} AS a FROM films GROUP BY genre ORDER BY genre
@whole [("comedy", "Amelie+Brazil"), ("drama", "Dune"), ("horror", "Alien+Alien")]
AI_AGG('What?', title)  = {whole}
< "What?": "+".join
# 3
AI_AGG(title, 'What?')  = {whole}
# 3
AI_AGG(title, instruction := 'What?')  = {whole}
# 3

-- a group may be filtered, ordered and distinct
SELECT AI_AGG('What?', title ORDER BY id DESC) FILTER (WHERE stars > 3),
  AI_AGG(DISTINCT genre, 'What?') FILTER (WHERE genre = 'drama'),
  AI_AGG('What?', title) FILTER (WHERE id > 99) FROM films
< "What?": "+".join
= [("Alien+Brazil+Amelie+Alien", "drama", None)]
? columns[0] == "ai_agg('What?', title ORDER BY id DESC) FILTER (WHERE stars > 3)"

-- clauses of an aggregate go together
:: SELECT {} FROM films
AI_AGG(DISTINCT 'What?', title ORDER BY title)
? query == "What?" and fields == sorted(fields)
AI_AGG(title, 'What?' ORDER BY title)
? query == "What?" and fields == sorted(fields)
AI_AGG('What?', title ORDER BY title)
? query == "What?" and fields == sorted(fields)

-- distinct may precede all arguments, which may have names
:: SELECT {} FROM films
AI_AGG(DISTINCT 'Which?', genre, max_tokens := 9)
? query == "Which?" and len(fields) == len(set(fields)) > 1
AI_AGG(DISTINCT genre, instruction := 'Which?')
? query == "Which?" and len(fields) == len(set(fields)) > 1
AI_AGG(DISTINCT 'Which?', genre ORDER BY genre)
? query == "Which?" and len(fields) == len(set(fields)) > 1
AI_SUMMARIZE_AGG(DISTINCT genre, instruction := 'Which?')
? query == "Which?" and len(fields) == len(set(fields)) > 1
AI_AGG(DISTINCT 'Which?', kind := upper(genre), number := id)
? set(fields[0]) == {"kind", "number"}

-- a group of several fields is a list of objects, whose names may precede an order
:: SELECT {} FROM films WHERE id < 3
AI_AGG('What?', title, stars)
? fields == [{"title": "Alien", "stars": 4.5}, {"title": "Amelie", "stars": 4.0}]
AI_AGG('What?', name := title, n := id ORDER BY id DESC)
? [list(each.items()) for each in fields] == [[("name", "Amelie"), ("n", 2)],
  [("name", "Alien"), ("n", 1)]]

-- a summary is an aggregate without a question
:: SELECT {} FROM films WHERE id < 3
AI_SUMMARIZE_AGG(title)
? (query, fields) == ("Summarize the texts.", ["Alien", "Amelie"])
AI_SUMMARIZE_AGG(title, instruction := 'Be brief.')
? query == "Be brief."
AI_SUMMARIZE_AGG(title, 'In a line')  ! QueryError write AI_AGG\('In a line', column\)

-- a rank where rows have none yet names a way
SELECT id FROM films WHERE AI_RANK('x', title) < 3  ! QueryError is in WHERE.*QUALIFY
SELECT max(AI_RANK('x', title)) FROM films  ! QueryError is in an aggregate.*QUALIFY
SELECT AI_RANK('x', title) AS r, count(*) FROM films GROUP BY AI_RANK('x', title)
! QueryError is in GROUP.*QUALIFY

-- a call without columns is no key of group by all
SELECT LLM('Hi') AS k, count(*) FROM films WHERE false GROUP BY ALL  = [("No", 0)]
