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
MERGE INTO t USING u ON t.id = u.id WHEN MATCHED AND LLM('yes', u.b) = 'No' THEN UPDATE SET a = LLM('up', u.b) WHEN NOT MATCHED THEN INSERT (id, a) VALUES (u.id, LLM('up', u.b)) RETURNING merge_action, id, a  # 6
MERGE INTO t AS x USING (SELECT id, b AS c FROM u) AS s USING (id) WHEN MATCHED THEN DELETE WHEN NOT MATCHED BY TARGET AND LLM('yes', s.c) = 'Yes' THEN INSERT VALUES (s.id, s.c, LLM('len', s.c), DEFAULT) WHEN NOT MATCHED BY SOURCE AND LLM('yes', x.a) = 'Yes' THEN UPDATE SET s = LLM('up', x.a)  # 6
MERGE INTO t USING u ON t.id = u.id AND LLM('yes', u.b) = 'No' WHEN MATCHED THEN UPDATE SET s = u.b WHEN NOT MATCHED THEN DO NOTHING  # 2
MERGE INTO t USING (SELECT id, LLM('up', b) AS b FROM u) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET a = s.b WHEN NOT MATCHED THEN INSERT (id, a) VALUES (s.id, s.b)  # 4
WITH q AS (FROM u) MERGE INTO t USING q ON t.id = q.id WHEN MATCHED AND LLM('yes', q.b) = 'No' THEN DELETE  # 2
