"""Only statements that read the registered tables can be run, however they are written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from relquery.connection import Connection, connect
from relquery.errors import SqlSyntaxError
from relquery.serve.errors import HttpError
from relquery.serve.ours.sql.reading import MOST_CHARACTERS, check_reads
from relquery.serve.ours.sql.tables import Tables
from tests.sql.fakes import FakeBackend


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tables]:
    file = tmp_path_factory.mktemp("tables") / "notes.csv"
    file.write_text("id,note\n1,A boat.\n2,A lake.\n")
    found = Tables({"notes": str(file)}, "1GB")
    yield found
    found.close()


@pytest.fixture
def connection(tables: Tables) -> Iterator[Connection]:
    backend = FakeBackend(lambda query, fields: "Yes")
    cursor = tables.cursor()
    with connect(backend, database=cursor, ledger=None) as found:
        yield found
    cursor.close()


ALLOWED = [
    "SELECT * FROM notes",
    "FROM notes",
    "FROM notes SELECT note LIMIT 1",
    "VALUES (1), (2)",
    "TABLE notes",
    "select count(*) from main.notes",
    "SELECT * FROM memory.main.notes",
    'SELECT * FROM "NOTES"',
    "WITH a AS (SELECT id FROM notes) SELECT * FROM a",
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3) SELECT * FROM n",
    "SELECT id FROM notes UNION ALL SELECT id FROM notes ORDER BY ALL",
    "SELECT * FROM (DESCRIBE notes)",
    "DESCRIBE notes",
    "DESCRIBE SELECT 1",
    "SHOW TABLES",
    "SHOW notes",
    "SUMMARIZE notes",
    "SELECT * FROM range(3) t(i), unnest([1, 2])",
    "SELECT LLM('Is it nice?', note AS text, labels := ['Yes', 'No']) FROM notes",
    "SELECT * FROM notes WHERE AI_FILTER('Is {note} nice?')",
    "SELECT AI_AGG('What?', note ORDER BY id) FROM notes",
    "EXPLAIN SELECT LLM('x', note) FROM notes",
    "EXPLAIN ANALYZE SELECT LLM('x', note) FROM notes",
    "EXPLAIN (FORMAT json) SELECT 1",
    "PIVOT notes ON id IN (1, 2) USING count(*)",
    "UNPIVOT notes ON note",
    "SELECT id, count(*) OVER (PARTITION BY note) FROM notes QUALIFY row_number() OVER () = 1",
    "SELECT list_transform([1], lambda x: x + 1), {'a': 1}, id::DOUBLE FROM notes",
    "SELECT * FROM passages('notes', 'boat', 1, 'note')",
    "SELECT '; DROP TABLE notes; --'",
    "SELECT 1;",
    "-- a comment\nSELECT /* another */ 1",
]


@pytest.mark.parametrize("query", ALLOWED)
def test_statements_that_read_are_allowed_and_run(connection: Connection, tables: Tables, query):
    check_reads(query, connection.database, tables.all)
    connection.sql(query)


REFUSED = [
    # what changes something
    "CREATE TABLE x AS SELECT 1",
    "CREATE TEMP TABLE x AS SELECT 1",
    "CREATE VIEW v AS SELECT LLM('x', note) FROM notes",
    "CREATE MACRO m() AS 1",
    "CREATE SECRET s (TYPE s3)",
    "CREATE SEQUENCE s",
    "INSERT INTO notes VALUES (3, 'x')",
    "INSERT INTO notes SELECT 1, LLM('x', note) FROM notes",
    "UPDATE notes SET id = 1",
    "DELETE FROM notes",
    "MERGE INTO notes USING notes AS n ON true WHEN MATCHED THEN DELETE",
    "TRUNCATE notes",
    "DROP TABLE notes",
    "ALTER TABLE notes ADD COLUMN x INT",
    "WITH x AS (INSERT INTO notes VALUES (1, 'c') RETURNING *) SELECT * FROM x",
    "WITH x AS (DELETE FROM notes RETURNING *) SELECT * FROM x",
    "EXPLAIN ANALYZE DELETE FROM notes",
    "EXPLAIN ANALYZE INSERT INTO notes VALUES (3, 'x')",
    "EXPLAIN COPY notes TO 'x.csv'",
    # files
    "COPY notes TO 'x.csv'",
    "COPY notes FROM 'x.csv'",
    "EXPORT DATABASE 'x'",
    "IMPORT DATABASE 'x'",
    "ATTACH 'x.duckdb'",
    "DETACH memory",
    "SELECT * FROM 'secret.csv'",
    "SELECT * FROM '/etc/passwd'",
    'SELECT * FROM "https://example.com/x.parquet"',
    "SELECT * FROM read_csv('secret.csv')",
    "SELECT * FROM READ_CSV_AUTO('secret.csv')",
    "SELECT * FROM system.main.read_csv('secret.csv')",
    "SELECT * FROM read_text('/etc/passwd')",
    "SELECT * FROM read_blob('/etc/passwd')",
    "SELECT * FROM read_json('x.json')",
    "SELECT * FROM read_parquet('x.parquet')",
    "SELECT * FROM parquet_metadata('x.parquet')",
    "SELECT * FROM sniff_csv('secret.csv')",
    "SELECT * FROM glob('*')",
    "SELECT * FROM read_duckdb('x.duckdb')",
    "SELECT (SELECT count(*) FROM glob('/*'))",
    "WITH a AS (FROM read_text('/etc/passwd')) SELECT LLM('x', content) FROM a",
    "SELECT LLM('x', (SELECT content FROM read_text('/etc/passwd'))) FROM notes",
    "DESCRIBE SELECT * FROM read_csv('secret.csv')",
    "SUMMARIZE SELECT * FROM read_csv('secret.csv')",
    "EXPLAIN SELECT * FROM read_csv('secret.csv')",
    # settings, extensions, other statements
    "SET threads = 1",
    "SET VARIABLE x = 1",
    "RESET threads",
    "PRAGMA version",
    "PRAGMA database_list",
    "PRAGMA enable_profiling",
    "CALL pragma_version()",
    "INSTALL httpfs",
    "LOAD httpfs",
    "CHECKPOINT",
    "USE memory",
    "BEGIN",
    "VACUUM",
    "PREPARE p AS SELECT 1",
    "EXECUTE p",
    "SHOW DATABASES",
    "SHOW VARIABLES",
    "SELECT current_setting('memory_limit')",
    "SELECT system.main.current_setting('memory_limit')",
    "SELECT getvariable('x')",
    "SELECT getenv('HOME')",
    "SELECT write_log('x')",
    "SELECT sleep_ms(100000)",
    "SELECT nextval('s')",
    "SELECT * FROM duckdb_settings()",
    "SELECT * FROM duckdb_databases()",
    "SELECT * FROM duckdb_secrets()",
    "SELECT * FROM duckdb_functions()",
    "SELECT * FROM duckdb_databases",
    "SELECT * FROM pg_settings",
    "SELECT * FROM pg_catalog.pg_settings",
    "SELECT * FROM information_schema.tables",
    "SELECT * FROM sqlite_master",
    "WITH pg_settings AS (SELECT 1) SELECT * FROM pg_settings",
    # SQL in texts, and memory of the process
    "SELECT * FROM query('SELECT * FROM pg_settings')",
    "SELECT * FROM query_table('pg_settings')",
    "SELECT * FROM json_execute_serialized_sql('x')",
    "SELECT * FROM arrow_scan(1::POINTER, 2::POINTER, 3::POINTER)",
    "SELECT * FROM pandas_scan(1::POINTER)",
    "SELECT * FROM python_map_function(1)",
    "SELECT * FROM seq_scan('notes')",
    "SELECT _rq_ai_embed_1234('x')",
    "SELECT * FROM _rq_table_0",
    # several statements
    "SELECT 1; SELECT 2",
    "SELECT 1; DROP TABLE notes",
    # what PIVOT would create
    "PIVOT notes ON id USING count(*)",
]


@pytest.mark.parametrize("query", REFUSED)
def test_everything_else_is_refused(connection: Connection, tables: Tables, query: str):
    with pytest.raises((HttpError, SqlSyntaxError)) as refused:
        check_reads(query, connection.database, tables.all)
    if isinstance(refused.value, HttpError):
        assert refused.value.status in (400, 403)


def test_a_misspelt_table_is_named_with_the_nearest(connection: Connection, tables: Tables):
    with pytest.raises(HttpError, match="Did you mean 'notes'"):
        check_reads("SELECT * FROM note", connection.database, tables.all)


def test_a_query_of_many_characters_is_refused(connection: Connection, tables: Tables):
    with pytest.raises(HttpError, match="characters"):
        check_reads("SELECT 1" + " " * MOST_CHARACTERS, connection.database, tables.all)


REACHING = [
    "FROM read_csv('{file}')",
    "FROM read_text('{file}')",
    "FROM '{file}'",
    "FROM glob('/*')",
    "COPY notes TO '{file}.copy'",
    "EXPORT DATABASE '{file}.d'",
    "ATTACH '{file}.duckdb'",
    "INSTALL httpfs",
    "LOAD httpfs",
    "SET enable_external_access = true",
    "SET lock_configuration = false",
    "SET memory_limit = '100GB'",
    "SET temp_directory = '/tmp'",
    "PRAGMA memory_limit = '100GB'",
    "RESET enable_external_access",
    "CREATE PERSISTENT SECRET s (TYPE s3)",
]


@pytest.mark.parametrize("query", REACHING)
def test_the_database_reaches_no_file_and_no_setting_even_unchecked(
    tables: Tables, tmp_path: Path, query: str
):
    file = tmp_path / "secret.csv"
    file.write_text("word\nhidden\n")
    with tables.cursor() as cursor, pytest.raises(Exception, match=r"(?i)disabled|locked|exist"):
        cursor.execute(query.format(file=file)).fetchall()
    assert [each.name for each in tmp_path.iterdir()] == ["secret.csv"]


def test_no_variable_of_the_program_is_a_table(tables: Tables):
    hidden = {"a": [1]}
    with tables.cursor() as cursor, pytest.raises(Exception, match="hidden"):
        cursor.execute("FROM hidden").fetchall()
    assert hidden
