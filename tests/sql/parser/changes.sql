UPDATE t SET a = LLM('up', a)                                                                  # 3
UPDATE t AS x SET a = LLM('up', x.a), n = n + 1 WHERE LLM('yes', x.a) = 'Yes' RETURNING id, a, n  # 5
UPDATE t x SET n = LLM('len', x.a)::DOUBLE, s = DEFAULT                                        # 3
UPDATE t SET n = LLM('len', a)                                                                 # 3
UPDATE t SET a = LLM('up', u.b), s = u.b FROM u WHERE u.id = t.id AND LLM('yes', u.b) = 'No'   # 4
UPDATE t SET (a, n) = (LLM('up', a), 7) WHERE id IS DISTINCT FROM 2                            # 2
UPDATE t SET n = (SELECT max(LLM('len', b)) FROM u) WHERE id = 1                               # 4
UPDATE main.t SET a = CASE WHEN n > 15 THEN LLM('up', a) ELSE a END                            # 2
DELETE FROM t WHERE LLM('yes', a) = 'Yes'                                                      # 3
DELETE FROM t AS z WHERE LLM('yes', z.a) = 'Yes' RETURNING *                                   # 3
DELETE FROM t USING u WHERE u.id = t.id AND LLM('yes', u.b) = 'No' RETURNING t.id              # 2
WITH q AS (SELECT id, LLM('up', b) AS c FROM u) UPDATE t SET a = q.c FROM q WHERE q.id = t.id  # 2
WITH q AS (SELECT id FROM u WHERE LLM('yes', b) = 'No') DELETE FROM t WHERE id IN (FROM q)     # 2
INSERT INTO t VALUES (5, LLM('up', 'ab'), 1, 'q'), (6, 'plain', 2, NULL) # 1
INSERT INTO t (n, a, id) VALUES (LLM('len', 'abc'), LLM('up', 'ab'), 7), (8, NULL, LLM('len', 'abcd')) # 3
INSERT INTO t (id, a) VALUES (9, (SELECT LLM('up', max(b)) FROM u)) RETURNING id, a # 1
INSERT INTO t (id, a) SELECT n, x FROM (VALUES (LLM('up', 'ab'), 9), ('z', 10)) v(x, n) ORDER BY n # 1
