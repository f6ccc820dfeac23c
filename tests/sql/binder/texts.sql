-- a sentiment is one of four words
:: SELECT {} FROM films WHERE id = 1
AI_SENTIMENT(title)
< "What is the sentiment of the text?": "mixed"
= [("mixed",)]
? query == "What is the sentiment of the text?\nAnswer positive, negative, neutral or mixed."
? sampling.labels == ("positive", "negative", "neutral", "mixed")
AI_SENTIMENT(title, instruction := 'How does it feel?')
< "How does it feel?": "neutral"
= [("neutral",)]

-- a sentiment about aspects is a struct that has them
:: SELECT {} FROM films WHERE id = 1
@feeling "What is the sentiment of the text, overall and about each of these aspects? It is unknown about an aspect that the text does not mention. Aspects: cost, crew."
AI_SENTIMENT(title, ['cost', 'crew'])
< {feeling}: '{"overall": "mixed", "cost": "negative", "crew": "unknown"}'
= [({"overall": "mixed", "cost": "negative", "crew": "unknown"},)]
AI_SENTIMENT(title, categories => ['cost', 'crew']).crew
< {feeling}: '{"overall": "mixed", "cost": "negative", "crew": "unknown"}'
= [("unknown",)]

-- a translation says from which language to which
:: SELECT {} FROM films WHERE id = 1
AI_TRANSLATE(title, 'en', 'de')
< "Translate the text from English to German.": "Fremder"
= [("Fremder",)]
? fields == {"title": "Alien"}
AI_TRANSLATE(title, '', 'FR')  ? query == "Translate the text to French."
AI_TRANSLATE(title, 'Klingon')  ? query == "Translate the text to Klingon."
AI_TRANSLATE('Hallo', 'de', 'en')  ? query == "Translate the text from German to English."
AI_TRANSLATE(title)  ! QueryError AI_TRANSLATE\(column, 'de', 'en'\)
AI_TRANSLATE(title, genre)  ! QueryError both as texts
AI_TRANSLATE(title, 'en', 'de', 'fr')  ! QueryError both as texts

-- a summary of a row may be limited
:: SELECT {} FROM films WHERE id = 1
AI_SUMMARIZE(title)
< "Summarize the text.": "A ship."
= [("A ship.",)]
AI_SUMMARIZE(title, genre, 20)
? query == "Summarize the text. Use at most 20 words."
? fields == {"title": "Alien", "genre": "horror"}
AI_SUMMARIZE(title, 0)  ? query == "Summarize the text."
AI_SUMMARIZE()  ! QueryError has no text. Give a column: AI_SUMMARIZE\(column\)

-- a redaction replaces what the model names and what has a form
:: SELECT {} FROM films WHERE id = 1
@found "List the personal data in the text, each part as it is written there, with its category. What is in brackets has been replaced already. NAME: names of persons."
AI_REDACT(note := coalesce('Ripley, ash@example.org; Ripleys too, not Ripley''s cat'), ['NAME', 'EMAIL'])
< {found}: '{"answer": [{"text": "Ripley", "category": "NAME"}, {"text": "nobody", "category": "NAME"}]}'
= [("[NAME], [EMAIL]; Ripleys too, not [NAME]'s cat",)]
? fields == {"note": "Ripley, [EMAIL_1]; Ripleys too, not Ripley's cat"}
AI_REDACT(note := coalesce('Ripley, ash@example.org'), ['NAME'])
< {found}: '{"answer": [{"text": "Ripley", "category": "NAME"}]}'
= [("[NAME], ash@example.org",)]
? fields == {"note": "Ripley, ash@example.org"}
AI_REDACT(note := coalesce('Anna Berger, ash@example.org'), ['NAME'], redact := true)
< {found}: '{"answer": []}'
= [("[NAME], ash@example.org",)]
? fields == {"note": "[NAME_1], [EMAIL_1]"}
AI_REDACT(note := coalesce('Anna Berger, ash@example.org'), ['NAME'])
< {found}: '{"answer": []}'
= [("[NAME], ash@example.org",)]
? fields == {"note": "[NAME_1], ash@example.org"}
AI_REDACT(note := coalesce('Ripley'), ['NAME'])
< {found}: 'Ripley'
~ PartialResultWarning is not JSON
= [(None,)]
AI_REDACT(title, ['SHOE_SIZE'])  ! QueryError kind of personal data 'SHOE_SIZE' is not known
AI_REDACT(title, genre)  ! QueryError needs one text

-- the data of a row is not sent and is in its answers
:: SELECT {} FROM films WHERE id = 1
@mail mail := coalesce('ash@example.org')
LLM('Echo', {mail}, note := coalesce('To ash@example.org, not [EMAIL_1]'), redact := true)
< 'Echo': lambda fields: fields["note"] + " and EMAIL_2"
= [("To ash@example.org, not [EMAIL_1] and ash@example.org",)]
? fields == {"mail": "[EMAIL_2]", "note": "To [EMAIL_2], not [EMAIL_1]"}
LLM('Echo', note := coalesce('Anna Berger, ash@example.org'), redact := ['NAME'])
< 'Echo': lambda fields: fields["note"]
= [("Anna Berger, ash@example.org",)]
? fields == {"note": "[NAME_1], ash@example.org"}
AI_EXTRACT(note := coalesce('Say "Anna Berger"'), 'who VARCHAR', redact := true)
< 'Extract from the data what is asked for.': '{"who": "[NAME_1]"}'
= [({"who": "Anna Berger"},)]
LLM('Who?', note := coalesce('Anna Berger'), redact := true) = 'Anna Berger'
< 'Who?': '[NAME_1]'
= [(True,)]
LLM('Echo', note := coalesce({'card': 4111111111111111, 'n': 12, 'who': ['Anna Berger']}), redact := true)
< 'Echo': '[PAYMENT_CARD_DATA_1]'
= [("4111111111111111",)]
? fields == {"note": {"card": "[PAYMENT_CARD_DATA_1]", "n": 12, "who": ["[NAME_1]"]}}
LLM('Echo', last_name := coalesce('Xyzzy'), n := coalesce(12), redact := true)
< 'Echo': '[NAME_1]'
= [("Xyzzy",)]
LLM('Echo', title, redact := genre)  ! QueryError true, false, or a list of kinds
LLM('Echo', title, redact := ['SIZE'])  ! QueryError is not known

-- a group has numbers of its own
SELECT AI_AGG('Who?', who, redact := true) FROM (VALUES ('Anna Berger'), ('Marc Dubois'), ('Anna Berger')) t(who)
< 'Who?': '[NAME_2] and [NAME_1]'
= [("Marc Dubois and Anna Berger",)]
? fields == ["[NAME_1]", "[NAME_2]", "[NAME_1]"]

-- rows that differ in their data alone are one request
SELECT who, LLM('Greet', who, redact := true) FROM (VALUES ('Anna Berger'), ('Marc Dubois')) t(who) ORDER BY who
< 'Greet': 'Dear [NAME_1]'
= [("Anna Berger", "Dear Anna Berger"), ("Marc Dubois", "Dear Marc Dubois")]
# 1

-- a join that asks about many rows cannot keep persons apart
SELECT f.id FROM films f JOIN reviews r ON AI_FILTER('{f.title} in {r.text}?', classify := true, redact := true)
! QueryError classify := true asks about many rows
