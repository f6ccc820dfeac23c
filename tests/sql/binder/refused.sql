-- a wrong call is refused before anything is asked
:: SELECT {} FROM films
AI_FILTER()  ! QueryError has no prompt. Expected AI_FILTER\('prompt'
AI_FILTER('x', title, labels := ['a'])  ! QueryError option 'labels' is not known
AI_FILTER(MODULE(title))  ! QueryError must be a field
AI_CLASSIFY(title)  ! QueryError has no labels
AI_CLASSIFY(title, ['a', 'b', 'a'], multi := true)  ! ConfigError give each label once
AI_CLASSIFY(title, ['a', ''], multi := true)  ! ConfigError must not be empty
AI_CLASSIFY(['a', 'b'])  ! QueryError has no field
AI_CLASSIFY(title, ['a'], {'output_mode': 'many'})  ! QueryError expected 'single' or 'multi'
AI_SENTIMENT(title, 'plot')  ! QueryError Aspects are a list
AI_REDACT(title, [])  ! QueryError needs one text
AI_EXTRACT(title)  ! QueryError does not say what to extract
AI_EXTRACT(title, 'what ever')  ! QueryError is not a type
AI_EXTRACT(title, 'a INTEGER', stop := 'x')  ! QueryError sets stop
AI_COMPLETE('x', title, output := 'a INTEGER', labels := ['b'])  ! QueryError labels and output
AI_AGG(title)  ! QueryError has no question
AI_AGG('x')  ! QueryError has no field
AI_AGG('x', ORDER BY id)  ! QueryError has no field
AI_RANK(title)  ! QueryError has no criterion
LLM(PROMPT('{1}', title))  ! QueryError counted from 0
LLM(PROMPT('{0}', title), genre)  ! QueryError fields after PROMPT
LLM(PROMPT(title))  ! QueryError needs a text first
AI_FILTER('x', title) OVER ()  ! QueryError does not take OVER
AI_FILTER('x', title) FILTER (WHERE true)  ! QueryError does not take FILTER
AI_AGG('x', title) OVER ()  ! QueryError does not take OVER
AI_CLASSIFY(title, ["good", "bad"])  ! QueryError single quotes

-- a function where it cannot be is told
INSERT INTO empty SELECT 1, 'a' RETURNING LLM('x', text)  ! QueryError RETURNING
SELECT PROMPT('Is {0} late?', title) FROM films  ! QueryError only an argument
SELECT MODULE(title) FROM films  ! QueryError only an argument

-- a comparison with a text of another type is refused
:: SELECT id FROM films WHERE {}
AI_FILTER('Good?', title) = 'maybe'  ! QueryError of type BOOLEAN. Use it as a condition
(AI_FILTER('Good?', title)) IN ('no', 'maybe')  ! QueryError compared with 'maybe'
'high' < AI_SCORE('Good?', title)  ! QueryError of type DOUBLE. Compare it with a number
AI_EXTRACT(title, 'DATE') BETWEEN '2024-01-01' AND 'today?'  ! QueryError 'today.', but it is of

-- a type that no label has is refused
:: SELECT {} FROM films
AI_CLASSIFY(title, ['a', 'b']) = 3  ! QueryError is read as DOUBLE, but none of its labels is a
avg(AI_CLASSIFY(title, ['a', 'b']))  ! QueryError is read as DOUBLE, but none of its labels is a
AI_CLASSIFY(title, ['a', 'b'])::DATE  ! QueryError is read as DATE, but none of its labels is a
LLM('Good?', title, labels := ['yes', 'no']) + 1
! QueryError is read as DOUBLE, but none of its labels is a

-- names of other systems are told by what they are called here
:: SELECT {} FROM films
AI_IF('Good?', title)  ! QueryError AI_IF is written in another way here. Write: SELECT AI_FILTER\('Good\?', title
llm_reduce('Which?', title)  ! QueryError Write: SELECT AI_AGG\('Which\?', title
AI_CLASIFY(title, ['a'])  ! QueryError Did you mean 'AI_CLASSIFY'

-- a model is not taken for a question, and one that cannot be opened is refused
:: SELECT {} FROM films
AI_COMPLETE('llama3.1-70b', title)  ! ConfigError names the model 'llama3.1-70b'.*rq.connect\(..., models=
AI_COMPLETE('claude-4-sonnet', 'Summarize: ' || title)
! ConfigError names the model 'claude-4-sonnet'.*Write 'anthropic:claude-4-sonnet'
AI_COMPLETE('claude-4-sonnet', PROMPT('Summarize: {0}', title))
! ConfigError Write 'anthropic:claude-4-sonnet'
AI_COMPLETE(model => 'claude-4-sonnet', prompt => 'Summarize: ' || title)
! ConfigError Write 'anthropic:claude-4-sonnet'
LLM('x', title, model := 3)  ! QueryError model of .* is 3; expected a text
AI_COMPLETE('openai:o3', 'x', title, model := 'openai:o4')  ! QueryError sets model twice
AI_FILTER('x', title, threshold := 2)  ! QueryError must be from 0 to 1
AI_FILTER('x', title, threshold := 0.5, classify := true)  ! QueryError is not for classify
