"""Layouts: where each part of a schema stands, and prompts as spans at these places."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relquery.backends.base import Backend
from relquery.backends.load import load
from relquery.errors import MarkupError
from relquery.markup.imports import MarkupPrompt
from relquery.markup.layout import Laid, Layout, lay_out
from relquery.markup.lower import Lowered, as_modules
from relquery.markup.schema import Schema
from relquery.markup.schemas import Schemas
from relquery.markup.tokens import TokenizedTexts, as_text
from relquery.prompt import Blank, Nest, Prompt, Reuse, Role, Span

MODEL = "random:layers=1,hidden=32,heads=2,ffn=32"


@pytest.fixture(scope="module")
def backend() -> Iterator[Backend]:
    opened = load(MODEL)
    yield opened
    opened.close()


def text_of(backend: Backend, ids: tuple[int, ...]) -> str:
    """Tokens of this network are bytes."""
    renderer = backend._renderer  # type: ignore[attr-defined]
    return str(renderer.decode(ids))


def lowered(backend: Backend, schema: str, inside: str) -> tuple[Layout, Lowered]:
    read = Schema.parse(schema)
    tokens = TokenizedTexts(backend)
    layout = lay_out(read, tokens)
    prompt = MarkupPrompt.parse(f"<prompt schema='{read.name}'>{inside}</prompt>", read)
    return layout, as_modules(prompt, layout, tokens)


def shown(backend: Backend, prompt: Prompt) -> list[tuple[int, str, str]]:
    """Position, kind and text of everything in a prompt."""
    found = []
    for span in prompt:
        start = span.position or 0
        parts = span.content.spans if isinstance(span.content, Nest) else (Span(span.content),)
        for part in parts:
            at = start + (part.position or 0)
            match part.content:
                case Blank(tokens=int(count)):
                    found.append((at, "blank", "?" * count))
                case Blank(tokens=tuple(ids)):
                    found.append((at, "blank", text_of(backend, ids)))
                case tuple(ids):
                    found.append((at, span.reuse.value, text_of(backend, ids)))
    return found


CITY = """<schema name='s'>Go: <module name='trip'>for <param name='days' len='4'/> days<union>
<module name='rome'>to Rome</module><module name='oslo'>to Oslo now</module></union>.</module>
<module name='end' cache='false'>Ciao.</module></schema>"""


def test_parts_follow_one_another_and_members_of_a_union_begin_together(backend: Backend) -> None:
    layout, _ = lowered(backend, CITY, "")
    places = {"/".join(laid.path): (laid.range.start, laid.range.stop) for laid in layout.all()}
    assert places == {
        "trip": (4, 29),
        "trip/rome": (17, 24),
        "trip/oslo": (17, 28),
        "end": (29, 34),
    }
    assert layout.modules["trip"].parameters["days"].start == 8
    assert layout.stop == 34


def test_a_prompt_imports_fills_and_adds(backend: Backend) -> None:
    _, made = lowered(backend, CITY, "<trip days='10'><rome/>hm</trip><end/>Well?")
    assert made.names == ("schema", "trip", "trip/rome")
    assert shown(backend, made.prompt) == [
        (0, "independent", "Go: "),
        (4, "independent", "for "),
        (8, "blank", "????"),
        (12, "independent", " days"),
        (28, "independent", "."),
        (17, "independent", "to Rome"),
        (8, "prefix", "10"),
        (24, "prefix", "hm"),
        (29, "prefix", "Ciao."),
        (34, "prefix", "Well?\nAnswer:"),
    ]
    assert all(span.role is Role.NONE for span in made.prompt)


def test_text_that_does_not_fit_its_gap_follows_the_end(backend: Backend) -> None:
    _, made = lowered(backend, CITY, "<trip><rome/>humpty</trip><end/>Well?")
    added = [part for part in shown(backend, made.prompt) if part[1] == "prefix"]
    assert added == [
        (29, "prefix", "Ciao."),
        (34, "prefix", "humpty"),
        (40, "prefix", "Well?\nAnswer:"),
    ]


def test_text_takes_the_place_of_modules_that_are_not_imported(backend: Backend) -> None:
    _, made = lowered(backend, CITY, "Now <end/>")
    assert shown(backend, made.prompt) == [
        (0, "independent", "Go: "),
        (4, "prefix", "Now "),
        (29, "prefix", "Ciao."),
        (34, "prefix", "\nAnswer:"),
    ]


def test_the_order_of_imports_changes_nothing(backend: Backend) -> None:
    schema = "<schema name='s'><module name='a'>one</module><module name='b'>two</module></schema>"
    assert lowered(backend, schema, "<a/><b/>")[1] == lowered(backend, schema, "<b/><a/>")[1]


def test_an_argument_that_is_too_long_is_told_with_its_place(backend: Backend) -> None:
    with pytest.raises(MarkupError, match=r"'days' of module 'trip' has 6 tokens.*at most 4"):
        lowered(backend, CITY, "<trip days='1234½'/>")


def test_a_scaffold_stands_where_the_argument_or_the_member_will(backend: Backend) -> None:
    schema = """<schema name='s'><module name='m'>a<param name='p' len='6' scaffold='some'/>b<union
    scaffold='x'><module name='x'>X<param name='q' len='2'/></module><module name='y'>Y</module>
    </union>c</module></schema>"""
    _, made = lowered(backend, schema, "<m p='P'><y/></m>")
    assert shown(backend, made.prompt)[:6] == [
        (0, "independent", "a"),
        (1, "blank", "some"),
        (7, "independent", "b"),
        (8, "blank", "X"),
        (9, "blank", "??"),
        (11, "independent", "c"),
    ]
    with pytest.raises(MarkupError, match="scaffold of parameter 'p' has 8 tokens; its length is"):
        lowered(backend, schema.replace("'some'", "'too long'"), "")


def test_messages_are_marked_by_the_template(backend: Backend) -> None:
    schema = """<schema name='s'><system>Be kind.</system><user><module name='a'>Hi.</module>
    </user><assistant>Yes?</assistant></schema>"""
    prompt = MarkupPrompt.parse("<prompt schema='s'><a/>Go.</prompt>", Schema.parse(schema))
    assert as_text(prompt) == (
        Span("Be kind.", Role.SYSTEM, begins=True),
        Span("Hi.", Role.USER, begins=True),
        Span("Yes?", Role.ASSISTANT, begins=True),
        Span("Go.", Role.USER, begins=True),
    )
    _, made = lowered(backend, schema, "<a/>Go.")
    assert [text for _, _, text in sorted(shown(backend, made.prompt))] == [
        "Be kind.\n\n",
        "Hi.",
        "\n\nYes?",
        "\n\nGo.\nAnswer:",
    ]


def test_text_behind_an_answer_is_the_users_again() -> None:
    schema = Schema.parse("<schema name='s'>Hi.</schema>")
    added = "More.<assistant>Yes?</assistant>Go.<assistant>Where?</assistant>"
    assert as_text(MarkupPrompt.parse(f"<prompt schema='s'>{added}</prompt>", schema)) == (
        Span("Hi.\nMore.", Role.USER, begins=True),
        Span("Yes?", Role.ASSISTANT, begins=True),
        Span("Go.", Role.USER, begins=True),
        Span("Where?", Role.ASSISTANT, begins=True),
    )


def test_a_schema_takes_the_place_of_one_of_the_same_name(backend: Backend) -> None:
    schemas, asked = Schemas(backend), "<prompt schema='s'><{}/></prompt>"
    for name in ("a", "b"):
        module = f"<module name='{name}'>text of {name}</module>"
        schemas.add(Schema.parse(f"<schema name='s'>{module}</schema>"))
        made = schemas.lower(asked.format(name)).prompt
        assert f"text of {name}" in [text for _, _, text in shown(backend, made)]


NAMES = "abcdefgh"
WORDS = st.sampled_from(["x", "yes", "no no", "fine."])


@st.composite
def bodies(draw: st.DrawFn, depth: int = 0) -> str:
    """The inside of a schema or module, with names that differ where they must."""
    names = iter(draw(st.permutations(NAMES)))
    parts = []
    for kind in draw(st.lists(st.sampled_from(["text", "module", "union", "param"]), max_size=5)):
        if kind == "text":
            parts.append(draw(WORDS))
        elif kind == "param" and depth:
            parts.append(f"<param name='p{next(names)}' len='{draw(st.integers(1, 5))}'/>")
        elif kind == "module" and depth < 3:
            parts.append(f"<module name='{next(names)}'>{draw(bodies(depth + 1))}</module>")
        elif kind == "union" and depth < 3:
            members = draw(st.lists(bodies(depth + 1), min_size=1, max_size=2))
            inside = "".join(f"<module name='{next(names)}'>{one}</module>" for one in members)
            parts.append(f"<union>{inside}</union>")
    return "".join(parts)


def choose(draw: Callable[[Any], Any], schema: Schema, modules: list[Laid]) -> str:
    """Imports of some modules, one of each union, with arguments and text between."""
    parts, taken = [], set()
    for laid in modules:
        start = laid.range.start, laid.path[:-1]
        if start in taken or not draw(st.booleans()):
            continue
        taken.add(start)
        given = "".join(
            f" {name}='{'z' * draw(st.integers(1, len(room)))}'"
            for name, room in laid.parameters.items()
            if draw(st.booleans())
        )
        inside = choose(draw, schema, list(laid.inside.values()))
        parts.append(f"{draw(WORDS) if draw(st.booleans()) else ''}<{laid.path[-1]}{given}>")
        parts.append(f"{inside}</{laid.path[-1]}>")
    return "".join(parts) + (draw(WORDS) if draw(st.booleans()) else "")


@given(st.data())
def test_ranges_never_overlap_and_every_text_appears_once(
    backend: Backend, data: st.DataObject
) -> None:
    tokens = TokenizedTexts(backend)
    schema = Schema.parse(f"<schema name='s'>{data.draw(bodies())}</schema>")
    layout = lay_out(schema, tokens)
    inside = choose(data.draw, schema, list(layout.modules.values()))
    prompt = MarkupPrompt.parse(f"<prompt schema='s'>{inside}</prompt>", schema)
    made = as_modules(prompt, layout, tokens).prompt
    texts = [(at, text) for at, kind, text in shown(backend, made) if kind != "blank"]
    taken: set[int] = set()
    for at, text in texts:
        places = set(range(at, at + len(text)))
        assert not places & taken
        taken |= places
    plain = "".join(str(span.content) for span in as_text(prompt))
    letters = sorted("".join(text for _, text in texts).replace("\nAnswer:", ""))
    assert [c for c in letters if not c.isspace()] == [c for c in sorted(plain) if not c.isspace()]
    assert all(span.reuse is Reuse.PREFIX for span in made[len(made) - 1 :])
