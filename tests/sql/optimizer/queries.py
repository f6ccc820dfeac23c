"""Random queries whose calls are in subqueries, WITH entries, set operations and joins."""

from __future__ import annotations

from hypothesis import strategies as st

CALLS = ["LLM('up', title)", "LLM('yes', title)", "LLM('up', genre)",
         "LLM('len', id)::INTEGER::VARCHAR",
         "CASE WHEN id > 3 THEN LLM('up', title) ELSE genre END"]  # fmt: skip
PLAIN = ["title", "genre", "upper(genre)", "info.lang", "NULL::VARCHAR"]
FILTERS = ["id > 1", "LLM('yes', title) = 'Yes'", "LLM('up', genre) <> 'DRAMA'", "seen",
           "stars > 2 OR LLM('up', title) = 'DUNE'"]  # fmt: skip


@st.composite
def tables(draw: st.DrawFn, depth: int = 2) -> str:
    """A query with the columns k, a number, and t and a, texts; most have calls."""
    call, plain = draw(st.sampled_from(CALLS)), draw(st.sampled_from(PLAIN))
    where = draw(st.lists(st.sampled_from(FILTERS), max_size=2, unique=True))
    rows = f"FROM films{' WHERE ' if where else ''}{' AND '.join(f'({one})' for one in where)}"
    forms = [
        f"SELECT id AS k, {plain} AS t, {call} AS a {rows}",
        f"SELECT id AS k, {plain} AS t, {call} AS a {rows}",
        f"SELECT DISTINCT length(genre) AS k, genre AS t, {call} AS a {rows}",
        f"SELECT DISTINCT ON (genre) id AS k, genre AS t, {call} AS a {rows} ORDER BY genre, id",
        f"SELECT max(id) AS k, genre AS t, max({call}) AS a {rows} GROUP BY genre",
        f"SELECT count(*) AS k, genre AS t, LLM('up', genre) AS a {rows} GROUP BY ALL",
        f"SELECT count(*) AS k, {call} AS t, min(genre) AS a {rows} GROUP BY {call}",
        f"SELECT max(id) AS k, max({call}) AS t, 'x' AS a {rows}",
        f"SELECT row_number() OVER (PARTITION BY genre ORDER BY id) AS k, genre AS t, {call} AS a "
        f"{rows}",
        f"SELECT id AS k, genre AS t, {call} AS a {rows} ORDER BY id DESC LIMIT 4",
        f"SELECT max(id) AS k, genre AS t, max({call}) AS a {rows} GROUP BY genre "
        "HAVING genre > 'd'",
        f"SELECT id AS k, {plain} AS t, {plain} AS a {rows}",
        "SELECT film AS k, text AS t, LLM('up', text) AS a FROM reviews",
    ]
    if depth:
        inner = draw(tables(depth - 1))
        other = draw(tables(depth - 1))
        kind = draw(st.sampled_from(["UNION ALL", "UNION ALL", "UNION", "EXCEPT", "INTERSECT",
                                     "EXCEPT ALL"]))  # fmt: skip
        forms += [
            f"SELECT * FROM ({inner}) WHERE {draw(conditions(''))}",
            f"SELECT i.k AS k, coalesce(t, 'none') AS t, i.a FROM ({inner}) AS i",
            f"SELECT k + 1 AS k, a AS t, t AS a FROM ({inner}) AS i WHERE {draw(conditions('i.'))}",
            f"({inner}) {kind} ({other})",
            f"({inner}) {kind} ({other})",
        ]
    return draw(st.sampled_from(forms))


def conditions(of: str) -> st.SearchStrategy[str]:
    """A condition over the columns of such a table."""
    one = st.sampled_from([
        f"{of}k < 4", f"{of}k BETWEEN 1 AND 3", f"{of}t > 'D'", f"{of}t IN ('horror', 'Dune')",
        f"{of}a = 'Yes'", f"{of}a > 'C'", f"{of}a IS NOT NULL", f"{of}t IS NULL",
        f"{of}k = length({of}t)", f"{of}k::VARCHAR < '4'", f"lower({of}a) LIKE '%e%'",
        f"{of}t = {of}a", f"TRY_CAST({of}a AS INTEGER) = 1",
    ])  # fmt: skip
    return st.one_of(
        one,
        one,
        st.tuples(one, one).map(lambda pair: f"({pair[0]} OR {pair[1]})"),
        st.tuples(one, one).map(lambda pair: f"{pair[0]} AND {pair[1]}"),
        one.map(lambda x: f"NOT ({x})"),
    )


@st.composite
def outer_queries(draw: st.DrawFn) -> str:
    """A SELECT over such a table: with conditions, joins, groups or a limit."""
    name = draw(st.sampled_from(["c", "(derived)"]))
    table = draw(tables())
    inner = "c AS p" if name == "c" else f"({table}) AS p"
    head = f"WITH c AS ({table}) " if name == "c" else ""
    items = draw(st.sampled_from(["*", "p.k", "p.k, p.a", "p.t, p.k", "count(*)", "max(p.a), p.t",
                                  "LLM('up', p.t), p.k", "p.k, p.t, p.a"]))  # fmt: skip
    kind = draw(st.sampled_from(["", "", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN",
                                 "SEMI JOIN", "ANTI JOIN"]))  # fmt: skip
    rows = inner
    if kind:
        on = draw(st.sampled_from(["r.film = p.k", "r.film = p.k AND p.t > 'D'",
                                   "r.film = p.k AND p.a <> 'No' AND p.k < 3"]))  # fmt: skip
        rows = f"{inner} {kind} reviews r ON {on}"
        if draw(st.booleans()) and "SEMI" not in kind and "ANTI" not in kind:
            rows = f"reviews r {kind} {inner} ON {on}"
    query = f"{head}SELECT {items} FROM {rows}"
    where = draw(st.lists(conditions("p."), max_size=2))
    query += f" WHERE {' AND '.join(where)}" if where else ""
    if items.startswith("max"):
        query += " GROUP BY p.t" + draw(st.sampled_from(["", " HAVING p.t > 'd'"]))
    if items == "count(*)":
        return query
    ends = ["", "", " ORDER BY ALL LIMIT 3"]
    if items in ("p.k, p.t, p.a", "*") and not kind:
        ends.append(" ORDER BY p.k DESC, t, p.a LIMIT 2 OFFSET 1")
    return query + draw(st.sampled_from(ends))


@st.composite
def twice_read(draw: st.DrawFn) -> str:
    """A WITH entry with two readers."""
    head = f"WITH c{draw(st.sampled_from(['', '(k, t, a)']))} AS ({draw(tables())})"
    first, second = draw(conditions("x.")), draw(conditions("y."))
    return draw(st.sampled_from([
        f"{head} SELECT x.k, y.a FROM c x JOIN c y ON x.k = y.k WHERE {first} AND {second}",
        f"{head} SELECT k FROM c x WHERE {first} UNION ALL SELECT k FROM c y WHERE {second}",
        f"{head} SELECT k, t FROM c x WHERE {first} AND k IN (SELECT k FROM c y WHERE {second})",
        f"{head} SELECT x.t FROM c x LEFT JOIN c y ON x.k = y.k AND {second} WHERE {first}",
        f"{head}, d AS (SELECT k, a FROM c x WHERE {first}) SELECT d.k, y.t FROM d, c y "
        f"WHERE {second} AND d.k <= y.k",
    ]))  # fmt: skip


ABOUT_PAIRS = ["LLM('yes', f.title, r.text) = 'Yes'", "LLM('up', r.text) <> 'LONG'",
               "LLM('len', genre) < 6", "f.id < LLM('len', text)::INTEGER",
               "LLM('up', f.info.lang) = 'EN'",
               "(r.id > 11 OR LLM('yes', title, r.id) = 'No')"]  # fmt: skip


@st.composite
def correlated_queries(draw: st.DrawFn) -> str:
    """Calls in subqueries that depend on an outer row."""
    about = " AND ".join(draw(st.lists(st.sampled_from(ABOUT_PAIRS), min_size=1, max_size=2)))
    matched = draw(
        st.sampled_from(["r.film = f.id", "r.film >= f.id", "film = f.id AND r.id > 10"])
    )
    rows = f"FROM reviews r WHERE {matched} AND {about}"
    folded = f"FROM reviews r WHERE {matched}"
    subquery = draw(st.sampled_from([
        f"EXISTS (SELECT 1 {rows})", f"NOT EXISTS (SELECT * {rows})",
        f"f.id IN (SELECT r.film {rows})", f"f.title NOT IN (SELECT r.text {rows})",
        f"f.genre = ANY (SELECT LLM('up', r.text) {folded})",
        f"(SELECT count(*) {rows}) = 1", f"(SELECT max(LLM('up', r.text)) {folded}) > 'H'",
        f"upper(f.title) > (SELECT min(LLM('up', r.text) || f.id) {rows})",
        f"(SELECT avg(LLM('len', r.text, f.title)) {folded}) > 8",
        f"(SELECT count(DISTINCT LLM('yes', r.text)) FILTER (WHERE {about}) {folded}) > 0",
        f"(SELECT LLM('up', r.text) {rows} ORDER BY r.id LIMIT 1) > 'H'",
        f"(SELECT string_agg(LLM('up', text) || f.title, ',' ORDER BY r.id DESC) {folded}) > 'H'",
        "(SELECT count(*) FROM (VALUES (1), (2)) v(n) WHERE LLM('up', f.title) > 'C' AND n < id) "
        "= 1",
    ]))  # fmt: skip
    other = draw(st.sampled_from(["f.id < 5", "LLM('yes', f.title) = 'Yes'", "f.seen", "true"]))
    source = draw(st.sampled_from([
        "films f", "(SELECT *, LLM('up', title) AS up FROM films) AS f",
        "films f JOIN empty e ON true",
        "films f LEFT JOIN (SELECT id AS x FROM films) g ON x > f.id"
    ]))  # fmt: skip
    return draw(st.sampled_from([
        f"SELECT f.id FROM {source} WHERE {other} AND {subquery}",
        f"SELECT f.id FROM {source} WHERE {subquery} OR {other}",
        f"SELECT f.id, {subquery} AS found, LLM('up', f.genre) FROM {source} WHERE {other}",
        f"SELECT f.genre, count(*) FROM {source} WHERE {subquery} GROUP BY f.genre",
        f"SELECT count(*) FILTER (WHERE {subquery}) FROM {source} WHERE {other}",
    ]))  # fmt: skip


@st.composite
def joined_queries(draw: st.DrawFn) -> str:
    """Calls in the conditions of joins of every kind."""
    kinds = ["LEFT", "RIGHT", "FULL", "SEMI", "ANTI", "INNER", "LEFT OUTER"]
    kind = draw(st.sampled_from(kinds))
    about = draw(st.sampled_from(ABOUT_PAIRS))
    matched = draw(st.sampled_from(["f.id = r.film AND ", "r.film >= f.id AND ", ""]))
    rows = f"films f {kind} JOIN reviews r ON {matched}{about}"
    texts = ["f.title"] if kind in ("SEMI", "ANTI") else ["f.title", "r.text"]
    if draw(st.booleans()):
        second = draw(st.sampled_from(kinds))
        rows += f" {second} JOIN (SELECT id AS x, LLM('up', title) AS up FROM films) g ON x = f.id"
        rows += draw(st.sampled_from(["", " AND LLM('yes', up) = 'Yes'", " AND up > 'B'"]))
    where = draw(st.sampled_from(["", " WHERE f.id < 4", " WHERE LLM('yes', f.title) = 'No'",
                                  " WHERE f.genre IS NULL"]))  # fmt: skip
    items = draw(st.sampled_from(["*", "f.id, f.title", f"LLM('up', {texts[-1]})", "count(*)"]))
    return f"SELECT {items} FROM {rows}{where}"
