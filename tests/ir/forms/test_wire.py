"""Queries in the JSON wire form of the spnl package are read as trees, and written again."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relquery.errors import QueryError
from relquery.ir.forms.spnl.wire import dump_wire, from_wire, to_wire
from relquery.ir.nodes import Bag, Chat, Fragment, Generate, Node, Prepare, Retrieve, Seq, Text
from relquery.ir.rebuild import with_children
from relquery.prompt import SPEAKERS, Role, Sampling
from tests.data import data_path
from tests.pace import within

# The queries published with the package, cut to their structure; texts shortened.
EMAIL = """
{"g": {"model": "{model}", "input": {"seq": [
  {"system": "You rank emails."},
  {"print": "Generate {n} candidate emails in parallel"},
  {"plus": [{"repeat": {"n": "{n}", "query": {"g": {
    "model": "{model}",
    "input": {"user": "write an email of at most {max_tokens} characters."},
    "max_tokens": "{max_tokens}", "temperature": "{temperature}"}}}}]},
  {"print": "Ask the model to select the best"},
  {"user": "My name is Shiloh."}]}}}
"""
VARIABLES = {
    "n": "3", "model": "m", "max_tokens": 100, "temperature": "0.25", "guidelines": "Be brief.",
}  # fmt: skip


def generated(input: Node, max_tokens: int = 256, temperature: float = 0.6) -> Generate:
    return Generate(input, Sampling(max_tokens=max_tokens, temperature=temperature))


def test_a_template_is_filled_and_a_repeat_becomes_copies_of_one_node():
    query = from_wire(EMAIL, VARIABLES)
    inner = generated(Text("write an email of at most 100 characters."), 100, 0.25)
    assert query.node == generated(
        Seq(
            (
                Text("You rank emails.", Role.SYSTEM),
                Bag((inner, inner, inner), independent=True),
                Text("My name is Shiloh."),
            )
        )
    )
    copies = query.node.children[0].children[1].children
    assert copies[0] is copies[1] is copies[2]
    assert query.model == "m"
    assert query.messages[0] == "Generate 3 candidate emails in parallel"


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "email",
            "generate seq system plus generate user generate user user",
        ),
        (
            "email2",
            "generate seq system plus generate seq system user user generate seq system user user",
        ),
        ("email3", "generate seq system plus generate seq system user generate seq system user"),
    ],
)
def test_the_published_queries_are_read(name: str, expected: str):
    data = data_path(f"spnl/{name}.json").read_bytes()
    query = from_wire(data, VARIABLES | {"n": 2})
    assert " ".join(node.head.split()[0] for node in query.node.walk()) == expected
    inner = [node for node in query.node.walk() if isinstance(node, Generate)][1:]
    assert {node.sampling for node in inner} == {Sampling(max_tokens=100, temperature=0.25)}
    assert query.messages
    assert not any("{" in node.content for node in query.node.walk() if isinstance(node, Text))
    assert from_wire(dump_wire(query.node)).node == query.node


def test_operators_mean_what_the_package_does_with_them():
    a, b, c = Text("a"), Text("b", Role.SYSTEM), Text("c", Role.ASSISTANT)
    abc = [{"user": "a"}, {"system": "b"}, {"assistant": "c"}]
    for name in ("seq", "par", "cross"):
        assert from_wire({name: abc}).node == Seq((a, b, c))
    assert from_wire({"plus": abc}).node == Bag((a, b, c), independent=True)
    assert from_wire({"seq": [{"print": "x"}, *abc[:1]]}).node == Seq((a,))
    query = from_wire({"seq": [{"monad": abc[1]}, abc[0], {"monad": abc[2]}]})
    assert (query.node, query.effects) == (Seq((a,)), (b, c))
    assert from_wire({"print": "x"}).node == Seq(())


def test_a_map_is_a_generation_per_input():
    query = from_wire(
        {"plus": [{"map": {"metadata": {"model": "m", "max_tokens": 4}, "inputs": ["a", "b"]}}]}
    )
    assert query.node == Bag((generated(Text("a"), 4), generated(Text("b"), 4)), independent=True)


def test_both_forms_of_repeat_are_read_and_stand_in_the_list_around_them():
    g = {"model": "m", "input": {"user": "a"}}
    node = generated(Text("a"))
    assert from_wire({"repeat": {"n": 2, "g": g}}).node == Seq((node, node))
    assert from_wire({"repeat": {"n": 1, "query": {"g": g}}}).node == node
    nested = {"repeat": {"n": 2, "query": {"repeat": {"n": 2, "query": {"user": "a"}}}}}
    assert from_wire({"seq": [nested]}).node == Seq((Text("a"),) * 4)


@pytest.mark.parametrize("limit", [{}, {"max_tokens": None}, {"max_tokens": 0}])
def test_a_generation_without_settings_has_the_packages_temperature_and_our_limit(limit):
    query = from_wire({"g": {"model": "m", "input": {"user": "a"}, **limit}})
    assert query.node == generated(Text("a"))


def test_a_temperature_that_is_null_is_0_as_the_package_sends_it():
    query = from_wire({"g": {"model": "m", "input": {"user": "a"}, "temperature": None}})
    assert query.node == generated(Text("a"), temperature=0.0)
    mapped = {"metadata": {"model": "m", "temperature": None}, "inputs": ["a"]}
    assert from_wire({"map": mapped}).node == generated(Text("a"), temperature=0.0)


def test_an_augment_is_a_retrieval_and_its_document_is_kept():
    body, model = {"user": "Who?"}, "embedder"
    for content, kept in [({"Text": "Long ago"}, "Long ago"), ({"Binary": [1, 2]}, b"\1\2")]:
        doc = ["tales.txt", content]
        query = from_wire({"augment": {"embedding_model": model, "body": body, "doc": doc}})
        assert query.node == Retrieve(Text("Who?"), "tales.txt")
        assert query.documents == {"tales.txt": kept}
    assert from_wire({"augment": {"body": body, "doc": "tales"}}).documents == {}


def test_braces_are_plain_text_where_no_variables_are_given():
    assert from_wire({"user": "{n} {}"}).node == Text("{n} {}")
    assert from_wire({"user": "{n} {}"}, {"n": "{m}"}).node == Text("{m} {}")


G = {"model": "m", "input": {"user": "a"}}
AB = [{"user": "a"}, {"user": "b"}]


def zipped(first, second):
    return from_wire({"zip": {"first": first, "second": second}}).node


@pytest.mark.parametrize("name", ["seq", "par", "cross", "plus"])
def test_zip_puts_a_message_before_each_of_a_list(name):
    a, b, x = Text("a"), Text("b"), Text("x")
    join = Seq((x, a, x, b)) if name != "plus" else Bag((x, a, x, b), independent=True)
    assert zipped({"user": "x"}, {name: AB}) == join
    assert zipped({"seq": AB}, {name: AB}) == with_children(join, (Seq((a, b)), a, Seq((a, b)), b))


def test_zip_of_two_messages_is_both_in_order():
    x, a = Text("x"), Text("a")
    for second in (AB[0], {"seq": AB[:1]}, {"plus": AB[:1]}, {"plus": [{"seq": AB[:1]}]}):
        assert zipped({"user": "x"}, second) == Seq((x, a))
    inner = generated(Text("a"))
    assert zipped({"user": "x"}, {"g": G}) == Seq((x, inner))
    assert zipped({"g": {**G, "temperature": 0}}, {"seq": AB}).children[0].sampling.temperature == 0
    assert zipped({"user": "x"}, {"seq": []}) == Seq(())


def test_zip_of_a_plus_joins_each_of_the_second_to_it():
    a, b = Text("a"), Text("b")
    both = [Bag((a, b, item), independent=True) for item in (a, b)]
    assert zipped({"plus": AB}, {"seq": AB}) == Seq(tuple(both))
    assert zipped({"plus": AB}, {"plus": AB}) == Bag(tuple(both), independent=True)
    assert zipped({"plus": AB[:1]}, {"seq": AB}) == Seq((a, a, a, b))


def test_zip_takes_what_a_repeat_or_a_map_comes_to_as_a_list():
    x, inner = Text("x"), generated(Text("a"))
    repeated = {"repeat": {"n": 2, "g": G}}
    assert zipped({"user": "x"}, repeated) == Seq((x, inner, x, inner))
    mapped = {"map": {"metadata": {"model": "m"}, "inputs": ["a", "b"]}}
    assert zipped({"user": "x"}, mapped) == Seq((x, inner, x, generated(Text("b"))))


def nodes_of(operator, levels):
    data = {"user": "a"}
    for _ in range(levels):
        data = operator(data)
    return data


MAP = {"map": {"metadata": {"model": "m"}, "inputs": ["a"] * 1000}}
ENDLESS: dict[str, list[object]] = {"seq": []}
ENDLESS["seq"].append(ENDLESS)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"repeat": {"n": 1001, "query": MAP}}, "At repeat: the query has more than 2,000,000"),
        (
            {"repeat": {"n": 30, "query": {"repeat": {"n": 40, "query": MAP}}}},
            "At repeat: the query has more than 2,000,000",
        ),
        (
            nodes_of(lambda x: {"zip": {"first": x, "second": {"seq": AB * 2}}}, 12),
            "At zip.first.*: the query has more than 2,000,000 nodes",
        ),
        (nodes_of(lambda x: {"seq": [x, x]}, 60), "At seq.*: the query has more than 2,000,000"),
        (ENDLESS, r"At seq\[0\]: the value contains itself here"),
        (
            {"g": {"model": "m", "input": ENDLESS}},
            r"At g.input.seq\[0\]: the value contains itself",
        ),
    ],
)
def test_what_grows_without_bound_is_refused_at_once(data, message):
    with within(2), pytest.raises(QueryError, match=message):
        from_wire(data)


def test_one_part_in_two_places_is_read_in_both():
    part = {"seq": AB}
    query = from_wire({"seq": [part, {"print": "x"}, part]})
    assert query.node == Seq((Seq((Text("a"), Text("b"))),) * 2)


@pytest.mark.parametrize(
    ("data", "variables", "message"),
    [
        (EMAIL, None, r"At g\.model: the placeholder {model} has no value"),
        (EMAIL, {"model": "m"}, r"At g\.input\.seq\[1\]\.print: the placeholder {n} has no value"),
        ({"user": "{temp}"}, {"temperature": 1}, "has no value.*Did you mean 'temperature'"),
        (EMAIL, VARIABLES | {"n": None}, "The variable 'n' is a NoneType"),
        (EMAIL, VARIABLES | {"n": "few"}, r"plus\[0\]\.repeat\.n: got 'few'; expected an integer"),
        (
            EMAIL,
            VARIABLES | {"max_tokens": "1.5"},
            "query.g.max_tokens: got '1.5'; expected an int",
        ),
        (EMAIL, VARIABLES | {"temperature": "hot"}, "temperature: got 'hot'; expected a number"),
        (EMAIL, VARIABLES | {"temperature": -1}, "At .*query.g: temperature is -1"),
        (EMAIL, VARIABLES | {"n": 10**8}, r"repeat: the query has more than 2,000,000 nodes"),
        (EMAIL, VARIABLES | {"n": -1}, r"repeat\.n: got -1; expected 0 or more"),
        ({"sequence": []}, None, "operator 'sequence' is not known.*Did you mean 'seq'"),
        ({}, None, "At the top: got an empty object; expected an object with one operator"),
        ([], None, "At the top: got list; expected an object with one operator"),
        ({"seq": [{"user": "a", "system": "b"}]}, None, r"At seq\[0\]: got keys 'user', 'system'"),
        ({"seq": {}}, None, "At seq: got an object of 0; expected a list"),
        ({"user": 1}, None, "At user: got 1; expected text"),
        ({"user": None}, None, "At user: got null; expected text"),
        ({"user": "\ud800"}, None, "At user: character 0 of the text is half of a surrogate pair"),
        ({"g": "m"}, None, "At g: got 'm'; expected an object with model, input, max_tokens"),
        ({"g": {"model": "m"}}, None, "At g: the key 'input' is missing"),
        ({"g": {**G, "max_token": 1}}, None, "The key 'max_token' is not.*mean 'max_tokens'"),
        ({"g": {**G, "max_tokens": 1.0}}, None, "At g.max_tokens: got 1.0; expected an integer"),
        ({"g": {**G, "max_tokens": True}}, None, "At g.max_tokens: got true; expected an integer"),
        ({"g": {**G, "max_tokens": -5}}, None, "At g: max_tokens is -5; it must be at least 1"),
        ({"g": {**G, "temperature": 1e999}}, None, "At g.temperature: got a huge number"),
        ({"g": {**G, "model": ""}}, None, "At g.model: the name is empty"),
        (
            {"seq": [{"g": G}, {"g": {**G, "model": "o"}}]},
            None,
            r"At seq\[1\]\.g\.model: the model ",
        ),
        ({"repeat": {"n": 2}}, None, "At repeat: expected either 'g' or 'query'"),
        ({"map": {"inputs": [1], "metadata": {"model": "m"}}}, None, r"map\.inputs\[0\]: got 1"),
        ({"ask": "Who?"}, None, "'ask' is not supported: it waits for input at a console"),
        ({"zip": [{"user": "a"}] * 2}, None, "At zip: got a list of 2; expected an object with"),
        (
            {"zip": {"first": {"user": "a"}, "second": {"augment": {"body": AB[0], "doc": "d"}}}},
            None,
            "At zip: the number of passages that the second operand retrieves",
        ),
        (
            {"zip": {"first": {"g": {**G, "temperature": 0.5}}, "second": {"seq": AB}}},
            None,
            "At zip: the first operand contains a random generation",
        ),
        ({"zip": {"first": {"user": "a"}}}, None, "At zip: the key 'second' is missing"),
        ({"augment": {"body": {"user": "a"}, "doc": [1]}}, None, "augment.doc: got a list of 1"),
        ({"augment": {"body": {"user": "a"}, "doc": ["x", {}]}}, None, "either 'Text' or 'Binary'"),
        (
            {"augment": {"body": {"user": "a"}, "doc": ["x", {"Binary": [256]}]}},
            None,
            r"At augment.doc\[1\].Binary: expected a list of bytes",
        ),
        (b"\xff", None, "Byte 0 of the query is not UTF-8"),
    ],
)
def test_what_is_wrong_is_named_with_its_spot(data, variables, message):
    with pytest.raises(QueryError, match=message):
        from_wire(data, variables)


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (Bag((Text("a"),), ", "), "At the top: a Bag whose children see each other"),
        (Seq((Text("a"), Bag(()))), r"At seq\[1\]: a Bag whose children see each other"),
        (Prepare(Text("a")), "Prepare has no wire form"),
        (Chat((Text("a"),)), "Chat has no wire form"),
        (Retrieve(Text("a"), "c"), "Retrieve has no wire form"),
        (Seq((Fragment("a"),)), r"At seq\[0\]: Fragment has no wire form"),
        (Generate(Text("a"), Sampling(top_k=4)), "has only max_tokens and temperature"),
    ],
)
def test_what_the_format_cannot_say_is_an_error(node, message):
    with pytest.raises(QueryError, match=message):
        to_wire(node)


def test_what_follows_spans_is_written_as_a_cross_so_that_it_sees_them_all():
    plus = Bag((Text("a"),), independent=True)
    assert list(to_wire(Seq((plus, Text("b"))))) == ["cross"]
    assert list(to_wire(Seq((Text("b"), plus)))) == ["seq"]
    assert to_wire(Seq(())) == {"seq": []}


def test_a_generation_is_written_with_its_model_and_settings():
    assert to_wire(Generate(Text("a"), Sampling(max_tokens=4)), "m") == {
        "g": {"model": "m", "input": {"user": "a"}, "max_tokens": 4, "temperature": 0.0}
    }


TEXTS = st.builds(Text, st.text(max_size=8) | st.just("{n} {model}"), st.sampled_from(SPEAKERS))
SETTINGS = st.builds(
    Sampling,
    max_tokens=st.integers(1, 10**6),
    temperature=st.floats(0, 4, allow_subnormal=False),
)
NODES = st.recursive(
    TEXTS,
    lambda below: st.one_of(
        st.builds(Seq, st.lists(below, max_size=4).map(tuple)),
        st.builds(lambda nodes: Bag(tuple(nodes), independent=True), st.lists(below, max_size=4)),
        st.builds(Generate, below, SETTINGS),
    ),
    max_leaves=12,
)


@given(NODES)
def test_what_is_written_is_read_as_the_same_tree(node: Node):
    assert from_wire(to_wire(node)).node == node
    text = dump_wire(node)
    assert from_wire(text).node == node
    assert json.loads(text) == to_wire(node)


@given(st.lists(st.integers(2, 12), max_size=60), st.sampled_from(["seq", "plus", "generate"]))
def test_what_stands_in_many_places_is_written_in_each_or_refused_at_once(copies, join):
    node, size = Generate(Text("a")) if join == "generate" else Text("a"), 1 + (join == "generate")
    for times in copies:
        node = Bag((node,) * times, independent=True) if join == "plus" else Seq((node,) * times)
        size = 1 + times * size
    if size <= 2_000:
        assert from_wire(to_wire(node)).node == node
    elif size > 2_000_000:
        for write in (to_wire, dump_wire):
            with within(1), pytest.raises(QueryError, match="the limit is 2,000,000"):
                write(node)


def test_trees_of_any_depth_and_width_are_written_and_read():
    deep: Node = Text("a")
    for _ in range(20_000):
        deep = Seq((deep,))
    assert from_wire(dump_wire(deep)).node == deep
    assert from_wire(to_wire(deep)).node == deep
    wide = Seq((Text("a"),) * 50_000)
    assert from_wire(dump_wire(wide)).node == wide


def test_an_error_deep_below_names_its_spot():
    text = '{"seq": [' * 5_000 + '{"usr": "a"}' + "]}" * 5_000
    message = r"At (seq\[0\]\.?)+ \.\.\. 9920 steps \.\.\. (\.?seq\[0\])+: .*Did you mean 'user'"
    with pytest.raises(QueryError, match=message):
        from_wire(text)
