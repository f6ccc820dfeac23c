-- a filter is true or false
SELECT id FROM films WHERE AI_FILTER('Is it good?', title) ORDER BY id
= [(1,), (2,), (4,)]
? query == "Is it good?\nAnswer Yes or No."
? sampling.labels == ("Yes", "No")
SELECT AI_FILTER('Good? Answer yes or no.', title) FROM films
? query == "Good? Answer yes or no."

-- a filter is a value like any other
SELECT count(*) FILTER (WHERE AI_FILTER('Good?', title)), bool_or(AI_FILTER('Good?', title))
  FROM films WHERE NOT AI_FILTER('Good?', title) OR id = 1  = [(1, True)]

-- a class is one of the labels in any order of arguments
:: SELECT {} FROM films WHERE id = 1
AI_CLASSIFY(title, ['good', 'bad'], instruction := 'How is it?')
< "How is it?": "bad"
= [("bad",)]
? query == "How is it?\nAnswer good or bad."
? fields == {"title": "Alien"}
? sampling.labels == ("good", "bad")
AI_CLASSIFY('How is it?', title, ['good', 'bad'])  = [("bad",)]
? (query, fields) == ("How is it?\nAnswer good or bad.", {"title": "Alien"})
? sampling.labels == ("good", "bad")
AI_CLASSIFY(title, ['good', 'bad'], {'task_description': 'How is it?'})  = [("bad",)]
? (query, fields) == ("How is it?\nAnswer good or bad.", {"title": "Alien"})
? sampling.labels == ("good", "bad")
AI_CLASSIFY('How is it?', title, labels := ['good', 'bad'])  = [("bad",)]
? (query, fields) == ("How is it?\nAnswer good or bad.", {"title": "Alien"})
? sampling.labels == ("good", "bad")

-- labels may be described and several labels are a list
:: SELECT {} FROM films WHERE id = 1
AI_CLASSIFY(title, [{'label': 'a', 'description': 'first'}, {'label': 'b', 'description': 'second'}])
< "Classify the data.": "a"
? "a: first\nb: second" in query
AI_CLASSIFY(title, ['a', 'b', 'c'], multi := true)
< "Classify the data.": '{"answer": ["b", "a", "b"]}'
= [(["b", "a"],)]
AI_CLASSIFY(title, ['a', 'b', 'c'], {'output_mode': 'multi'})  = [(["b", "a"],)]

-- a label that does not exist is an error of the row
:: SELECT {} FROM films WHERE id = 1
AI_CLASSIFY(title, ['a'], multi := true)
< "Classify the data.": '{"answer": ["d"]}'
~ PartialResultWarning .
= [(None,)]
? "expected one of 'a'" in errors[0].error
AI_CLASSIFY('How is it?', title, ['good', 'bad'])
< "How is it?": "fine"
~ PartialResultWarning none of the labels 'good', 'bad'
= [(None,)]

-- white space around a label is no part of it
SELECT AI_FILTER('Good?', title) FROM films LIMIT 1
< "Good?": " Yes\n"
= [(True,)]

-- extracted values have their types
@people AI_EXTRACT(title, 'names VARCHAR[], amount DECIMAL(20,2)', instruction := 'people, the sum')
SELECT {people} AS e FROM films WHERE id = 1
< "people, the sum": '{"names": ["Ann", "Bob"], "amount": 12345678901234567.89}'
= [({"names": ["Ann", "Bob"], "amount": Decimal("12345678901234567.89")},)]
SELECT e.amount + 1 FROM (SELECT {people} AS e FROM films WHERE id = 1)
= [(Decimal("12345678901234568.89"),)]

-- types come in several forms
@all Extract from the data what is asked for.
:: SELECT AI_EXTRACT(title, {}) FROM films WHERE id = 1
'INTEGER'
< "{all}": '{"answer": 7}'
= [(7,)]
'h HUGEINT'
< "{all}": '{"h": 170141183460469231731687303715884105727}'
= [({"h": 2**127 - 1},)]
'{"type": "object", "properties": {"n": {"type": "integer"}}}'
< "{all}": '{"n": 3}'
= [({"n": 3},)]
['who', 'when']
< "{all}": '{"who": "Ann", "when": null}'
= [({"who": "Ann", "when": None},)]
$1
< "{all}": '{"who": "Ann"}'
$ [["who"]]
= [({"who": "Ann"},)]
{'who': 'Who wrote it?'}  = [({"who": "Ann"},)]
response_format => {'who': 'Who wrote it?'}  = [({"who": "Ann"},)]
response_format => ['who']  = [({"who": "Ann"},)]
response_format => {'type': 'json', 'schema': {'type': 'object', 'properties': {'who':
  {'type': 'string'}}}}  = [({"who": "Ann"},)]
response_format => {'type': 'json_schema', 'json_schema': {'name': 'n', 'schema': {'type':
  'object', 'properties': {'who': {'type': 'string'}}}}}  = [({"who": "Ann"},)]
{'type': 'Which?', 'schema': 'What?'}
< "{all}": '{"type": "a", "schema": "b"}'
= [({"type": "a", "schema": "b"},)]

-- llm and complete take a type
SELECT LLM('How old?', title, output := 'INTEGER') + 1,
  AI_COMPLETE('How old?', title, response_format => 'INTEGER') FROM films WHERE id = 1
< "How old?": '{"answer": 12}'
= [(13, 12)]
# 1
? sampling.schema is not None

-- an invalid value is null with an error that says what is wrong
SELECT AI_EXTRACT(title, 'day DATE, n INTEGER') FROM films WHERE id = 1
< "{all}": '{"day": "2024-02-30", "n": 1}'
~ PartialResultWarning .
= [(None,)]
? errors[0].error == "day is '2024-02-30'; expected DATE."
SELECT AI_EXTRACT(title, 'a VARCHAR').a = 5 FROM films
< "{all}": '{"a": "x"}'
~ PartialResultWarning .
? errors[0].error.startswith("(AI_EXTRACT(title, 'a VARCHAR')).a is 'x'; the query needs")

-- half a character in JSON does not end the query
SELECT AI_EXTRACT(title, 'JSON') FROM films WHERE id = 1
< "{all}": '{"answer": "\\ud800"}'
= [('"\ufffd"',)]

-- a score is the probability of the first label, and of numbers their mean
SELECT AI_SCORE('Good?', title) FROM films WHERE id = 1
< "Good?": Answer("Yes", Finish.STOP, scores={"Yes": -0.5, "No": -0.9327521295671886})
= [(approx(0.6065306597126334),)]
? sampling.scored
SELECT AI_SCORE('Stars?', title, labels := [1, 5]) FROM films WHERE id = 1
< "Stars?": Answer("5", scores={"1": -1.3862943611198906, "5": -0.2876820724517809},
  finish=Finish.STOP)
= [(approx(4.0),)]

-- a score without probabilities is an error of the row, and odd ones do not end the query
:: SELECT AI_SCORE('Good?', title) FROM films WHERE id = {}
1  = [(None,)]
~ PartialResultWarning no probabilities
1
< "Good?": Answer("Yes", Finish.STOP, scores={"No": -0.5})
? rows[0][0] in (0.0, None)
1
< "Good?": Answer("Yes", Finish.STOP, scores={"Yes": nan, "No": 0.0})
~ PartialResultWarning .
? rows[0][0] in (0.0, None)

-- a failed answer skips all calls that read it
SELECT LLM('three', LLM('two', LLM('one', id))) FROM films WHERE id = 1
< "one": Answer(None, Finish.ERROR, "out of spice")
~ PartialResultWarning out of spice
= [(None,)]
? queries == ["one"]
? len(errors) == 1

-- texts that DuckDB reads as the type are compared, and labels of which some are numbers are read
SELECT id FROM films WHERE AI_FILTER('Is it good?', title) = 'yes' ORDER BY id
= [(1,), (2,), (4,)]
SELECT sum(AI_CLASSIFY(title, ['7', 'none'])::INTEGER) FROM films WHERE id < 3
< "Classify the data.": "7"
= [(14,)]

-- a schema as a parameter is a type, and null a value where it allows it
:: SELECT AI_EXTRACT(title, {}) FROM films WHERE id = 1
$t
< "{all}": '{"answer": 7}'
$ {"t": {"type": "integer"}}
= [(7,)]
$t  = [(7,)]
$ {"t": {"type": ["integer", "null"]}}
$t  = [(7,)]
$ {"t": {"anyOf": [{"type": "integer"}, {"type": "null"}]}}
$t  = [("7",)]
$ {"t": {"enum": ["7", "8"]}}
$t  = [(None,)]
$ {"t": {"type": "array", "items": {"type": "integer"}}}
~ PartialResultWarning .
'{"type": ["integer", "null"]}'  = [(None,)]
< "{all}": '{"answer": null}'
? not errors
