-- modules are found wherever a call may be
SELECT LLM('up', module(title)) FROM films WHERE id = 1
? modules(asked[-1]) == ['"title": "Alien"']
SELECT LLM('up', MODULE(f.title)) FROM films f WHERE id = 1
? modules(asked[-1]) == ['"title": "Alien"']
SELECT LLM('up', MODULE(r.*)) FROM reviews r WHERE id = 10
? modules(asked[-1]) == ['"id": 10', '"film": 1', '"text": "great"']
SELECT LLM('up', MODULE(upper(genre))) FROM films WHERE id = 2
? modules(asked[-1]) == ['"upper_genre": "COMEDY"']
SELECT genre, LLM('up', MODULE(genre), sum(id)) FROM films WHERE id = 3 GROUP BY 1
? modules(asked[-1]) == ['"genre": "comedy"']
SELECT sum(LLM('len', MODULE(title))::INT) FROM films WHERE id = 6
? modules(asked[-1]) == ['"title": "Dune"']
SELECT f.id FROM films f JOIN reviews r ON f.id = r.film AND LLM('yes', MODULE(r.text), f.title) =
  'Yes' WHERE r.id = 12
? modules(asked[-1]) == ['"text": "sweet"']
WITH a AS (SELECT LLM('up', MODULE(title)) AS t FROM films WHERE id = 1) FROM a
? modules(asked[-1]) == ['"title": "Alien"']
SELECT LLM('up', MODULE(LLM('len', title))) FROM films WHERE id = 1
? modules(asked[-1]) == ['"llm_2": "5"']
SELECT LLM('up', MODULE(title), title) FROM films WHERE id = 1
? modules(asked[-1]) == ['"title": "Alien"']
SELECT LLM('up', title, MODULE(title)) FROM films WHERE id = 1  ? modules(asked[-1]) == []

-- calls with and without a module are two
SELECT LLM('up', title), LLM('up', MODULE(title)) FROM films WHERE id = 1
? list(map(modules, asked)) == [[], ['"title": "Alien"']]

-- explain says which fields are modules
EXPLAIN SELECT LLM('up', MODULE(title), genre) FROM films
? told[0]["fields"] == "MODULE(title), genre"
? "each value of title is read by itself" in told[0]["note"]

-- what is no field is refused
:: SELECT {} FROM films
LLM(MODULE('up'), title)  ! QueryError must be a field of an LLM call
LLM('up', MODULE())  ! QueryError must be a field of an LLM call
LLM('up', MODULE(id, title))  ! QueryError must be a field of an LLM call

-- answers and names are those without modules
SELECT LLM('up', MODULE(title), genre) AS a FROM films ORDER BY a
= [("COMEDY|AMELIE",), ("COMEDY|BRAZIL",), ("DRAMA|DUNE",), ("DRAMA|NULL",)] + [("HORROR|ALIEN",)] * 2
? columns == ["a"]
SELECT id, LLM('up', MODULE(r.*)) FROM reviews r WHERE LLM('yes', MODULE(text)) = 'No'
= [(10, "1|10|GREAT"), (11, "1|11|SCARY"), (12, "2|12|SWEET")]
? columns == ["id", "llm('up', MODULE(r.*))"]
SELECT genre, sum(LLM('len', MODULE(title))::INT) FROM films GROUP BY 1 ORDER BY 1
= [("comedy", 12), ("drama", 4), ("horror", 10)]
? columns == ["genre", "sum(CAST(llm('len', MODULE(title)) AS INTEGER))"]
