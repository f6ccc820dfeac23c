-- columns in braces are fields
SELECT AI_FILTER('Is {title} a {genre}?') FROM films WHERE id = 1
? query.startswith('Is "title" a "genre"?')
? fields == {"title": "Alien", "genre": "horror"}
SELECT AI_FILTER('Is {title} good?', genre, title) FROM films WHERE id = 1
? fields == {"genre": "horror", "title": "Alien"}
SELECT LLM('Is {ü} {"a b"}?') FROM (SELECT id AS ü, genre AS "a b" FROM films)
? query == 'Is "ü" "a b"?'
? {"ü": 1, "a b": "horror"} in [one.fields for one in asked]

-- a qualified column in braces keeps its table, where names would clash
SELECT f.id FROM films f JOIN reviews r ON f.id = r.film AND AI_FILTER('Does {r.id} fit {f.id}?')
  WHERE r.id = 12
? fields == {"r.id": 12, "f.id": 2}
SELECT LLM('Does {r.id} fit {f.id} of {title}?', r.id, f.id, f.title) FROM films f
  JOIN reviews r ON f.id = r.film WHERE r.id = 12
? query == 'Does "r.id" fit "f.id" of "title"?'
? fields == {"r.id": 12, "f.id": 2, "title": "Amelie"}
SELECT f.id FROM films f SEMI JOIN reviews r
  ON f.id = r.film AND AI_FILTER('Is {r.text} about {f.title}?') ORDER BY f.id
? {frozenset(one.fields) for one in asked} == {frozenset({"r.text", "f.title"})}

-- an alias keeps its name beside a column of that name
SELECT LLM('x', title := genre, title) FROM films WHERE id = 1
? fields == {"title": "horror", "films.title": "Alien"}
SELECT LLM('x', title := genre, title, title := stars) FROM films WHERE id = 1
? fields == {"title": "horror", "films.title": "Alien", "title_1": 4.5}

-- a number in braces is the field at that place, with and without a name
SELECT AI_FILTER('Is {1} of {0}?', title, genre) FROM films WHERE id = 1
? query.startswith('Is "genre" of "title"?')
SELECT LLM('Is {0} of {1}?', id + 1, name := title) FROM films WHERE id = 1
? query == 'Is "id" of "name"?'

-- braces without a column are sent and warned about
SELECT LLM('Is {titel} good?', title) FROM films WHERE id = 1
~ PromptWarning no field or column has that name
? query == "Is {titel} good?"
SELECT LLM('Fill in {{title}} as {"a": {"b": 1}}', title) FROM films WHERE id = 1
? query == 'Fill in {title} as {"a": {"b": 1}}'

-- names in braces that are not sent are warned about
:: SELECT {} FROM films WHERE id < 3
AI_AGG('What of {genre}?', title)  ~ PromptWarning .
LLM(PROMPT('Is {0} a {genre}?', title))  ~ PromptWarning .
AI_FILTER('Is { nosuch } ok?', title)  ~ PromptWarning .

-- a prompt template has its fields in the text, and rows are asked in the order of its text
SELECT AI_FILTER(PROMPT('Is {0} of {1}, {0}?', title, stars)) FROM films WHERE id = 1
# 1
? query == "Is Alien of 4.5, Alien?\nAnswer Yes or No."
? fields == {}
? "JSON" not in str(first.prompt[0].content)
SELECT LLM(PROMPT('{0} {1}', genre, id)) FROM films
? [one.split()[0] for one in queries] == ["horror"] * 2 + ["comedy"] * 2 + ["drama"] * 2
EXPLAIN SELECT LLM(PROMPT('Is {0} good?', title)) FROM films
? told[0]["order"] == "pinned" and "PROMPT pins the order" in told[0]["note"]

-- a prompt may be the value of a column
SELECT id, LLM(title || '?', genre) AS a FROM films ORDER BY id
< "Alien?": "monster"
? (rows[0], rows[4]) == ((1, "monster"), (5, None))
? sorted(queries) == ["Alien?", "Amelie?", "Brazil?", "Dune?"]
? fields == {"genre": "horror"}
SELECT LLM('Is it film ' || id || '?', title, tags) IS NULL FROM films ORDER BY id
< "no"
? [at for at, (is_null,) in enumerate(rows, 1) if is_null] == [5] and stages[0].skipped == 1

-- fields have names and never the text of an expression
SELECT LLM('x', total := stars * 2, upper(genre), name := MODULE(title)) FROM films LIMIT 1
? fields == {"total": 9.0, "upper_genre": "HORROR", "name": "Alien"}
SELECT LLM('x', a := title, b := title, title, title) FROM films WHERE id = 1
? fields == {"a": "Alien", "b": "Alien", "title": "Alien"}
SELECT upper(title) AS k, LLM('x', name := k) FROM films WHERE id = 1
? fields == {"name": "ALIEN"}
SELECT id FROM films f WHERE EXISTS (SELECT 1 FROM reviews r WHERE r.film = f.id
  AND LLM('x', a := r.text, b := f.id, f.title) = 'Yes') AND f.id = 6
? fields == {"a": "long", "b": 6, "title": "Dune"}
SELECT LLM('x', a := id) FROM films WERE id = 1  ! QueryError line 1, column 42

-- a macro can name its fields, and a field that a macro gives keeps its name
CREATE OR REPLACE MACRO good(x) AS AI_FILTER('Good?', film := x)
SELECT id FROM films WHERE good(title)
? fields.keys() == {"film"}
CREATE OR REPLACE MACRO m(x) AS upper(x)
SELECT LLM('Is {f} good?', f := m(title)) FROM films WHERE id = 1
? (asked[-1].query, list(asked[-1].fields)) == ('Is "f" good?', ["f"])
CREATE OR REPLACE MACRO m(x) AS LLM('inner', x)
SELECT LLM('Is {f} good?', f := m(title)) FROM films WHERE id = 1
? (asked[-1].query, list(asked[-1].fields)) == ('Is "f" good?', ["f"])
CREATE OR REPLACE MACRO m(x) AS x || LLM('inner', x)
SELECT LLM('Is {f} good?', f := m(title)) FROM films WHERE id = 1
? (asked[-1].query, list(asked[-1].fields)) == ('Is "f" good?', ["f"])

-- a text is the prompt wherever it stands
:: SELECT {} FROM films WHERE id = 1
LLM(title, 'Summarize')
? (query, fields) == ("Summarize", {"title": "Alien"})
AI_COMPLETE(title, 'Summarize')
? (query, fields) == ("Summarize", {"title": "Alien"})
AI_COMPLETE(prompt => 'Summarize', text => title)
? (query, fields) == ("Summarize", {"title": "Alien"})
AI_COMPLETE('Summarize', title, model_parameters => {'temperature': 0})
? (query, fields) == ("Summarize", {"title": "Alien"})
AI_COMPLETE('follow-up', title)
? query == "follow-up"

-- a text that is the name of a column gives a warning, and other texts as fields none
:: SELECT {} FROM films
AI_FILTER('Good?', 'title')  ~ PromptWarning has the text 'title'.* write title without
AI_CLASSIFY('title', ['a', 'b'])  ~ PromptWarning has the text 'title'.* write title without
< "title": "a"
LLM('Good?', id, 'title')  ~ PromptWarning has the text 'title'.* write title without
AI_FILTER('Good?', 'a title'), LLM('Good?', 'film')

-- a value with a name is a field, unless it is a literal, which sets an option
:: SELECT {} FROM films WHERE id = 1
LLM('Loud?', title, total := 'x')  ! QueryError total
LLM('Film ' || id, kind := coalesce('new'))
? (query, fields) == ("Film 1", {"kind": "new"})
LLM('Film ' || id, kind := coalesce($kind))
$ {"kind": "new"}
? (query, fields) == ("Film 1", {"kind": "new"})
AI_EXTRACT(kind := coalesce($kind), 'INTEGER')
$ {"kind": "new"}
~ PartialResultWarning .
? query.startswith("Extract") and fields == {"kind": "new"}

-- what is in lists, structs, maps and unions is sent as a column of its type is
SELECT LLM('x', v) FROM (VALUES (['{"z": 1234567890123456789.1}'::JSON]),
  (['{"z": 1234567890123456789.2}'])) x(v)
# 2
:: SELECT LLM('x', v := {})
['{"z": 2512292042121000001.123456789}'::JSON, 'null', NULL]
? '[{"z": 2512292042121000001.123456789},null,null]' in "".join(map(text_of, first.prompt))
[{'a "b"': 0.1::FLOAT, 'c': 1234567890123456.70::DECIMAL(18, 2)}, {'a "b"': 'inf'::FLOAT, 'c': 0.5::DECIMAL(18, 2)}, NULL]
? fields["v"] == [{'a "b"': 0.1, "c": "1234567890123456.70"}, {'a "b"': "inf", "c": "0.50"}, None]
{'x': MAP {['k']: ['nan'::DOUBLE]}, 'y': union_value(u := '{"v": 1.10}'::JSON), 'z': (1, 'é', 2.50)}
? '{"x":{"[k]":["nan"]},"y":{"u":{"v": 1.10}},"z":[1,"é","2.50"]}' in "".join(map(text_of, first.prompt))
{'r': random(), 's': [[1e300, NULL]], 't': NULL::DOUBLE[]}
? fields["v"]["s"] == [[1e300, None]] and fields["v"]["t"] is None
{'a': [[0.5]]::FLOAT[1][], 'b': ()}, {'a': (), 'b': 0.5}
? sorted(map(str, fields.values())) == ["{'a': [[0.5]], 'b': []}", "{'a': [], 'b': 0.5}"]

-- names of fields may follow explain
:: {} SELECT LLM('Good?', total := stars * 2) FROM films
EXPLAIN
? [one["fields"] for one in told] == ["total"]
EXPLAIN ANALYZE
? [one["calls"] for one in told] == [4]
/* all */ EXPLAIN
? [one["fields"] for one in told] == ["total"]

