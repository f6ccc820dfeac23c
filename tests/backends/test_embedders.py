"""What compares texts by default: an encoder that is installed, or spelling, which is then told."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from relquery.backends.embedders import default_embedder
from relquery.connection import connect
from relquery.model.catalogue import ENCODERS
from relquery.retrieval.embedder import tell_once
from tests.real.conftest import needed
from tests.sql.conftest import upper_or_length
from tests.sql.fakes import FakeBackend

COMMIT = "3" * 40
NOTHING = (2).to_bytes(8, "little") + b"{}"
"""A file of no weights."""
FIRST, *_ = ENCODERS


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """An empty cache of the hub, in a process that has said nothing yet."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    tell_once.cache_clear()
    yield tmp_path
    tell_once.cache_clear()


def placed(cache: Path, name: str, *files: str, model: Path | None = None) -> None:
    """A repository in the cache, of files without weights or those of a folder."""
    home = cache / f"models--{name.replace('/', '--')}"
    (home / "refs").mkdir(parents=True)
    (home / "refs" / "main").write_text(COMMIT)
    (home / "snapshots").mkdir()
    snapshot = home / "snapshots" / COMMIT
    if model is not None:
        snapshot.symlink_to(model, target_is_directory=True)
        return
    snapshot.mkdir()
    for file in files:
        (snapshot / file).write_bytes(NOTHING)


def test_it_is_the_first_known_encoder_that_is_whole_and_needs_no_prefix(cache: Path) -> None:
    whole = ("config.json", "model.safetensors")
    assert default_embedder() == "tfidf"
    placed(cache, "intfloat/e5-small-v2", *whole)
    placed(cache, "owner/unknown", *whole)
    placed(cache, "sentence-transformers/all-MiniLM-L12-v2", "config.json")
    assert default_embedder() == "tfidf"
    placed(cache, "BAAI/bge-base-en-v1.5", *whole)
    assert default_embedder() == "BAAI/bge-base-en-v1.5"
    placed(cache, FIRST.name, *whole)
    assert default_embedder() == FIRST.name
    next(cache.glob(f"*{FIRST.name.partition('/')[2]}/*/*/model.safetensors")).write_bytes(b"")
    assert default_embedder() == "BAAI/bge-base-en-v1.5"


def test_to_look_for_it_imports_no_client_of_the_hub() -> None:
    code = (
        "import sys; from relquery.backends.embedders import load_embedder; "
        "load_embedder('auto'); print({'huggingface_hub', 'torch'} & set(sys.modules))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"


def test_spelling_is_told_once_where_it_is_compared_by_default(
    caplog: pytest.LogCaptureFixture,
) -> None:
    query = "SELECT AI_SIMILARITY('a', 'b'), passages('docs', 'cats')"
    with caplog.at_level(logging.WARNING, "relquery"):
        for embedder, lines in (("tfidf", 0), ("auto", 1), ("auto", 1)):
            with connect(FakeBackend(upper_or_length), embedder=embedder) as con:
                con.sql("CREATE TABLE docs AS SELECT 'two cats' AS text")
                con.sql(query)
            assert len(caplog.records) == lines, embedder
    assert f"relquery models fetch {FIRST.name}" in caplog.text
    assert "compared by words and spelling" in caplog.text


def test_an_installed_encoder_compares_what_texts_mean_unless_spelling_is_asked_for(
    cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    placed(cache, FIRST.name, model=needed("minilm").resolve())
    pair = "AI_SIMILARITY('The physician was tired.', 'A doctor needed sleep.')"
    asked = f"""SELECT a.t FROM a JOIN a AS b ON {pair} > 0.3 AND AI_FILTER('Same?', a.t, b.t)"""
    for embedder, by, is_near in (("auto", FIRST.name, True), ("tfidf", "spelling", False)):
        with connect(FakeBackend(upper_or_length), embedder=embedder) as con:
            con.sql("CREATE TABLE a AS SELECT 'x' AS t")
            ((near,),) = con.sql(f"SELECT {pair} > 0.3").fetchall()
            assert near is is_near
            assert con.explain(asked).calls[0].rows == int(is_near)
            assert con.sql(f"SELECT {pair}").report.compared_by == f"AI_SIMILARITY by {by}"
    assert not caplog.records
