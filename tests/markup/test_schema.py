"""Schemas: what they define, and why others are refused."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relquery.errors import MarkupError
from relquery.markup.schema import (
    LooseText,
    Message,
    Module,
    ModuleParameter,
    Part,
    Schema,
    Union,
    tidy,
)
from tests.cases import case_file

TRAVEL = """
<schema name="travel">
  <system>You plan travels.</system>
  <user>
    <module name="plan" priority="2">
      A journey of <param name="duration" len="4"/>
      <union scaffold="home">
        <module name="home">at home,
          in <parameter name="city" length="10" scaffold="a city"/></module>
        <module name="abroad" cache="false">abroad</module>
      </union>
    </module>
    Be short.
  </user>
</schema>"""


def shape(parts: tuple[Part, ...]) -> list[Any]:
    """What matters of parts: texts, parameters with lengths, modules with notes, roles."""
    found: list[Any] = []
    for part in parts:
        match part:
            case LooseText(content):
                found.append(content)
            case ModuleParameter(name, length):
                found.append((name, length))
            case Module(name, inner, is_cached, priority):
                found.append((name, is_cached, priority, shape(inner)))
            case Union(modules):
                found.append(("union", shape(modules)))
            case Message(role, inner):
                found.append((role.value, shape(inner)))
    return found


def test_a_schema_is_a_tree_of_modules_unions_parameters_and_messages() -> None:
    abroad = ("abroad", False, 0, ["abroad"])
    choice = ("union", [("home", True, 0, ["at home,\n          in ", ("city", 10)]), abroad])
    plan = ("plan", True, 2, ["\nA journey of ", ("duration", 4), choice])
    assert shape(Schema.parse(TRAVEL).parts) == [
        ("system", ["You plan travels."]),
        ("user", [plan, "\nBe short.\n"]),
    ]


def test_modules_are_found_with_their_paths() -> None:
    found = [path for path, _ in Schema.parse(TRAVEL).modules()]
    assert found == [("plan",), ("plan", "home"), ("plan", "abroad")]


def test_what_is_wrong_is_told_with_its_place() -> None:
    for inside, message, line, column in case_file(__file__, "schema_refused.txt"):
        with pytest.raises(MarkupError, match=message) as caught:
            Schema.parse(f"<schema name='s'>{inside}</schema>")
        assert (caught.value.line, caught.value.column) == (int(line), int(column))
        assert str(caught.value).splitlines()[-1].endswith("^")


@pytest.mark.parametrize("text", ["<prompt schema='a'/>", "<module name='a'/>"])
def test_other_documents_are_no_schemas(text: str) -> None:
    with pytest.raises(MarkupError, match="begins with <schema name="):
        Schema.parse(text)


def test_indentation_next_to_tags_is_no_text() -> None:
    for text, tidied in case_file(__file__, "tidied.txt"):
        read = [eval(one.replace("\n", "\\n")) for one in (text, tidied)]
        assert tidy(read[0]) == read[1]


class TestFiles:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        (tmp_path / "secret.txt").write_text("secret")
        folder = tmp_path / "schemas"
        (folder / "texts").mkdir(parents=True)
        (folder / "texts" / "a.txt").write_text("text <of> a")
        return folder

    def load(self, folder: Path, src: str) -> Schema:
        file = folder / "s.xml"
        file.write_text(f"<schema name='s'><module name='a' src='{src}'/></schema>")
        return Schema.load(file)

    def test_a_module_may_be_a_file_in_the_folder(self, folder: Path) -> None:
        (module,) = self.load(folder, "texts/a.txt").parts
        assert isinstance(module, Module)
        assert module.parts == (LooseText("text <of> a"),)

    @pytest.mark.parametrize("src", ["../secret.txt", "texts/../../secret.txt", "/etc/passwd"])
    def test_no_file_outside_it_is_read(self, folder: Path, src: str) -> None:
        with pytest.raises(MarkupError, match="outside the schema's folder"):
            self.load(folder, src)

    def test_no_link_leads_out_of_it(self, folder: Path) -> None:
        os.symlink(folder.parent / "secret.txt", folder / "link.txt")
        os.symlink(folder.parent, folder / "up")
        for src in ("link.txt", "up/secret.txt"):
            with pytest.raises(MarkupError, match="outside the schema's folder"):
                self.load(folder, src)

    def test_a_name_that_no_file_can_have_is_told(self, folder: Path) -> None:
        os.symlink(folder / "circle", folder / "circle")
        for src in ("circle", "x" * 5_000):
            with pytest.raises(MarkupError, match=r"not the name of a file|not a file"):
                self.load(folder, src)

    def test_what_is_no_text_is_told(self, folder: Path) -> None:
        (folder / "bytes.txt").write_bytes(b"\xff\xfe\xfa")
        for src, why in {
            "b.txt": "not a file",
            "texts": "not a file",
            "bytes.txt": "UTF-8",
        }.items():
            with pytest.raises(MarkupError, match=why):
                self.load(folder, src)
        with pytest.raises(MarkupError, match="cannot be read"):
            Schema.load(folder / "none.xml")


WORDS = st.text("abc ", min_size=1, max_size=8).filter(lambda text: not text.isspace())


@st.composite
def written(draw: st.DrawFn, names: list[str], depth: int = 0) -> str:
    """The inside of a module. names: those used so far, all different."""
    parts = []
    for _ in range(draw(st.integers(0, 3))):
        kind = draw(st.sampled_from(["text", "module", "union", "parameter"]))
        if kind == "text" or depth == 3:
            parts.append(f"[{draw(WORDS)}{len(names)}]")
            names.append("")
        elif kind == "parameter":
            names.append("")
            parts.append(f"<param name='p{len(names)}' len='{draw(st.integers(1, 9))}'/>")
        else:
            count = draw(st.integers(1, 3)) if kind == "union" else 1
            modules = []
            for _ in range(count):
                names.append("")
                name = f"m{len(names)}"
                modules.append(f"<module name='{name}'>{draw(written(names, depth + 1))}</module>")
            inside = "".join(modules)
            parts.append(f"<union>{inside}</union>" if kind == "union" else inside)
    return "".join(parts)


def texts_of(parts: Iterable[Part]) -> list[str]:
    found = []
    for part in parts:
        match part:
            case LooseText(content):
                found.append(content)
            case Module(parts=inner) | Message(parts=inner) | Union(modules=inner):
                found += texts_of(inner)
    return found


@given(st.data())
def test_every_text_of_a_schema_is_in_it_once_and_in_order(data: st.DataObject) -> None:
    inside = data.draw(written([]))
    schema = Schema.parse(f"<schema name='s'><module name='all'>{inside}</module></schema>")
    plain = "".join(part.partition(">")[2] for part in f">{inside}".split("<"))
    assert "".join(texts_of(schema.parts)) == plain


@pytest.mark.parametrize("given", [None, b"<schema/>", 3])
def test_what_is_no_schema_at_all_is_told(given: Any) -> None:
    with pytest.raises(MarkupError, match="must be a string"):
        Schema.parse(given)
    with pytest.raises(MarkupError, match="must be a path"):
        Schema.load(given)


def test_space_is_kept_where_the_schema_says_so() -> None:
    inner = (
        "<module name='a'>\n one\n <param name='b' len='1'/>\n<param name='c' len='1'/></module>"
    )
    kept = Schema.parse(
        f"<schema name='s' xml:space='preserve'>\n<union>\n{inner}</union></schema>"
    )
    assert texts_of(kept.parts) == ["\n", "\n one\n ", "\n"]
    assert texts_of(Schema.parse(f"<schema name='s'>\n{inner}</schema>").parts) == ["\none\n"]
    begun = inner.replace("<module", "<module xml:space='preserve'")
    whole = Schema.parse(f"<schema name='s'>\n{begun}</schema>")
    assert texts_of(whole.parts) == ["\n one\n ", "\n"]
    ended = inner.replace("<module", "<module xml:space='default'")
    whole = Schema.parse(f"<schema name='s' xml:space='preserve'>\n{ended}</schema>")
    assert texts_of(whole.parts) == ["\n", "\none\n"]
    with pytest.raises(MarkupError, match="xml:space is 'keep'; it must be 'default'"):
        Schema.parse("<schema name='s' xml:space='keep'>x</schema>")
