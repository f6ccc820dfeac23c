"""A query as one sequence with special tokens: Figures 10 to 12 of paper 002, and what holds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relquery.errors import ConfigError, QueryError, UnsupportedQueryError
from relquery.ir.nodes import Bag, Chat, Generate, Node, Prepare, Seq, Text
from relquery.ir.tokens import (
    Aligned,
    End,
    Join,
    Leaf,
    Mark,
    SpanTree,
    TokenForm,
    align,
    span_tree,
    tokenize,
)
from relquery.prompt import Role
from tests.ir.token_parser import parse_tokens

BLOCK = 2
# Tokens of the figures' messages: "F2" has two, and each is shown by its message's name.
NAMES = {
    "S1": (10,), "S2": (20,), "U1": (11,), "F1": (30,), "F2": (31, 32),
    "A1": (41, 42, 43), "A2": (51, 52),
}  # fmt: skip


def encode(text: str, role: Role) -> tuple[int, ...]:
    return NAMES[text]


def shown(form: TokenForm) -> str:
    """The form as a figure draws it."""
    names = {token: name for name, tokens in NAMES.items() for token in tokens}

    def one(item: int | Mark | End) -> str:
        if isinstance(item, End):
            return f"){item.length}"
        return names[item] if isinstance(item, int) else item.value

    return " ".join(map(one, form.items))


def plus(*children: Node) -> Bag:
    return Bag(children, independent=True)


RAG = Generate(
    Seq((Text("S1"), plus(Prepare(Text("F1")), Prepare(Text("F2"))), Text("U1")))
)  # Figure 9b
INNER = Generate(plus(Seq((Text("S1"), Text("U1")))))
JUDGE = Generate(Seq((Text("S2"), plus(INNER, INNER))))  # Figure 9c


# The figures are pictures, which the paper's text lacks. Their tokens follow from the queries
# (Figures 6 and 9), the counts in the captions, and the parentheses of Table 3. The captions' 6 and
# 7 are the length of the sub-tree, `(` and `)n` included; an absolute position of `(` would be 1
# and 2, counted from 0.


def test_figures_10_and_11_the_rag_query_as_tokens_and_in_blocks() -> None:
    assert shown(tokenize(span_tree(RAG, encode))) == "S1 ( F1 )( F2 F2 )6 U1"
    aligned = align(tokenize(span_tree(RAG, encode)), BLOCK)
    assert shown(aligned.form) == "S1 □ ( F1 )( F2 F2 □ )7 U1"
    assert aligned.cropped == ()


# The caption of Figure 12 says that A1 has 3 tokens and A2 has 2; the text of 5.3.2 that A1's third
# is cropped, for a block begins with it. So A1 begins a block. Where S1 and U1 are of one token, as
# in Figure 10, that needs a pad behind them, or nothing would have to go: `( S1 U1 A1 A1 A1` fills
# three blocks. The caption gives no number for `)n`; 13 is what the rule of Figure 11 makes it.


def test_figure_12_nested_generation_in_blocks() -> None:
    form = tokenize(span_tree(JUDGE, encode, [NAMES["A1"], NAMES["A2"]]))
    assert shown(form) == "S2 ( S1 U1 A1 A1 A1 )( S1 U1 A2 A2 )12"
    aligned = align(form, BLOCK, crop=True)
    assert shown(aligned.form) == "S2 □ ( S1 U1 □ A1 A1 )( S1 U1 □ A2 A2 )13"
    assert aligned.cropped == (NAMES["A1"][2:], ())
    assert aligned.form.outputs == ((6, 8), (12, 14))


def test_an_answer_shorter_than_a_block_is_not_lost() -> None:
    aligned = align(tokenize(span_tree(JUDGE, encode, [NAMES["A1"], NAMES["A2"]])), 4, crop=True)
    assert shown(aligned.form) == "S2 □ □ □ ( S1 U1 □ A1 A1 A1 □ )( S1 U1 □ A2 A2 □ □ )17"
    assert aligned.cropped == ((), ())


def test_plus_in_plus_is_parenthesized_twice() -> None:
    node = plus(Text("S1"), Seq((Text("U1"), plus(Text("F1"), Text("F2")))))
    form = tokenize(span_tree(node, encode))
    assert shown(form) == "( S1 )( U1 ( F1 )( F2 F2 )6 )11"
    assert shown(align(form, BLOCK).form) == "( S1 )( U1 ( F1 )( F2 F2 □ )7 □ )13"


def test_outside_a_plus_an_inner_generation_stands_as_its_answer_alone() -> None:
    node = Generate(Seq((Text("S2"), Generate(Text("U1")))))
    assert span_tree(node, encode, [NAMES["A1"]]) == Join((Leaf((20,)), Leaf(NAMES["A1"])))


def test_in_the_input_of_an_inner_generation_another_is_its_answer_alone() -> None:
    node = plus(Generate(Seq((Generate(Text("S1")), Text("U1")))))
    tree = span_tree(node, encode, [NAMES["A1"], NAMES["A2"]])
    assert shown(tokenize(tree)) == "( A1 A1 A1 U1 A2 A2 )8"
    assert tokenize(tree).outputs == ((5, 7),)
    # In a span of that input it stands with its own input again.
    node = plus(Generate(plus(Generate(plus(Text("U1"))))))
    tree = span_tree(node, encode, [NAMES["A1"], NAMES["A2"]])
    assert shown(tokenize(tree)) == "( U1 A1 A1 A1 A2 A2 )8"


def test_every_inner_generation_needs_one_answer() -> None:
    with pytest.raises(QueryError, match="an inner generation is missing: <Generate 'generate'"):
        span_tree(JUDGE, encode, [])
    with pytest.raises(QueryError, match="more answers than inner generations"):
        span_tree(JUDGE, encode, [(1,)] * 3)


@pytest.mark.parametrize("node", [Chat((Text("S1"),)), Bag((Text("S1"),), ", ")])
def test_sugar_and_separators_are_an_error(node: Node) -> None:
    with pytest.raises(UnsupportedQueryError, match="Desugar the query first"):
        span_tree(Seq((node,)), encode)


def test_a_block_has_at_least_one_token() -> None:
    with pytest.raises(ConfigError, match="block_size is 0"):
        align(TokenForm(()), 0)


B, S = Mark.BEGIN, Mark.SIBLING


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ((7, S), r"Position 1 of the token sequence is wrong: no '\(' is open here"),
        ((End(1),), r"Position 0 .* no '\(' is open here"),
        ((7, B, 8, S), r"Position 1 .* this '\(' is not closed"),
        ((7, B, 8, End(2)), r"Position 3 .* n = 2. Its '\(' at 1 makes it 3"),
    ],
)
def test_parentheses_that_do_not_match_are_an_error(
    items: tuple[int | Mark | End, ...], message: str
) -> None:
    with pytest.raises(QueryError, match=message):
        parse_tokens(TokenForm(items))


LEAVES = st.builds(Leaf, st.lists(st.integers(0, 9), max_size=5).map(tuple), st.booleans())
TREES = st.recursive(
    LEAVES,
    lambda below: st.builds(Join, st.lists(below, max_size=4).map(tuple), st.booleans()),
    max_leaves=14,
)


def canonical(tree: SpanTree) -> SpanTree:
    """What a sequence can tell of a tree, written anew, without a look at sequences."""
    parts: list[SpanTree] = []
    for part in flat(tree):
        last = parts[-1] if parts else None
        plain = [leaf for leaf in (last, part) if isinstance(leaf, Leaf) and not leaf.open_end]
        if len(plain) == 2:
            parts[-1] = Leaf(plain[0].tokens + plain[1].tokens)
        else:
            parts.append(part)
    if not parts:
        return Leaf(())
    return parts[0] if len(parts) == 1 else Join(tuple(parts))


def flat(tree: SpanTree) -> list[SpanTree]:
    match tree:
        case Leaf(tokens):
            return [tree] if tokens else []
        case Join(children, True):
            return [Join(tuple(map(canonical, children)), True)] if children else []
        case Join(children):
            return [part for child in children for part in flat(child)]


def words(form: TokenForm) -> list[int]:
    return [item for item in form.items if isinstance(item, int)]


@given(TREES)
def test_a_sequence_is_read_back_as_its_tree(tree: SpanTree) -> None:
    form = tokenize(tree)
    assert parse_tokens(form) == canonical(tree)
    again = tokenize(parse_tokens(form))
    assert again.items == form.items
    assert words(form) == [token for leaf in tree.walk() for token in getattr(leaf, "tokens", ())]


@given(TREES, st.integers(1, 5))
def test_pads_change_nothing_but_where_special_tokens_stand(
    tree: SpanTree, block_size: int
) -> None:
    form = tokenize(tree)
    aligned = align(form, block_size).form
    assert parse_tokens(aligned) == parse_tokens(form)
    assert words(aligned) == words(form)
    assert_in_blocks(aligned, block_size)


@given(TREES, st.integers(1, 5))
def test_cropping_takes_ends_of_answers_says_which_and_leaves_something(
    tree: SpanTree, block_size: int
) -> None:
    form = tokenize(tree)
    aligned = align(form, block_size, crop=True)
    assert_in_blocks(aligned.form, block_size)
    assert words(form) == with_cropped(aligned)
    for (begin, end), lost in zip(aligned.form.outputs, aligned.cropped, strict=True):
        assert len(lost) < block_size
        assert not lost or (end > begin and begin % block_size == end % block_size == 0)
    assert align(aligned.form, block_size, crop=True).form == aligned.form


def with_cropped(aligned: Aligned) -> list[int]:
    """The tokens, with what answers lost put back."""
    items, at = aligned.form.items, 0
    restored: list[int | Mark | End] = []
    for (_, end), lost in zip(aligned.form.outputs, aligned.cropped, strict=True):
        restored += [*items[at:end], *lost]
        at = end
    return [item for item in [*restored, *items[at:]] if isinstance(item, int)]


def assert_in_blocks(form: TokenForm, block_size: int) -> None:
    for position, item in enumerate(form.items):
        if isinstance(item, End) or item in (Mark.BEGIN, Mark.SIBLING):
            assert position % block_size == 0
        if isinstance(item, End):
            assert form.items[position - item.length + 1] is Mark.BEGIN


def test_trees_of_any_depth_and_width_have_a_sequence() -> None:
    node: Node = Text("F1")
    for _ in range(2_000):
        node = Bag((node, Text("U1")), independent=True)
    node = Seq((node, *(Text("F2"),) * 2_000))
    form = tokenize(span_tree(node, encode))
    assert tokenize(parse_tokens(form)).items == form.items
    assert form.items[:2] == (Mark.BEGIN, Mark.BEGIN)
