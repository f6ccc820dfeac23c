"""Rewrite rules, each `Node -> Node | None`: None if it does not apply (paper 002, section 5.1).

A rule looks at a node and its descendants, never at its ancestors, so its result means the same
wherever the node is. Two trees mean the same if the same tokens attend to each other. A child of
`plus` attends only to itself. A generation there includes its input, but elsewhere it is only the
text of its answer. So no rule turns a generation into a child of plus, or the other way round.
Only `reduce_tree` changes what is asked, and only on request (section 6).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from relquery.errors import QueryError, type_of
from relquery.ir.nodes import Bag, Chat, Fragment, Generate, Node, Prepare, Retrieve, Seq, Text
from relquery.ir.paths import awaits_answer, children_of, distinct, with_children


def desugar_chat(node: Node) -> Node | None:
    """chat(x, ...) => generate(seq(x, ...))"""
    if isinstance(node, Chat):
        return Generate(Seq(node.children), node.sampling)
    return None


def desugar_fragment(node: Node) -> Node | None:
    """fragment "x" => prepare(user "x"), which `drop_prepare` removes outside plus"""
    if isinstance(node, Fragment):
        return Prepare(Text(node.content))
    return None


# (corpus, text of the question, maximum number of texts) -> texts, best first.
Lookup = Callable[[str, str, int], Sequence[str]]


def desugar_retrieve(retrieve: Lookup) -> Callable[[Node], Node | None]:
    """The rule that looks fragments up with `retrieve`, once for each distinct question.

    A Retrieve whose query contains an answer stays: what to look for is known only in execution.
    The rule raises QueryError if `retrieve` returns something other than texts, or too many texts.
    """
    by_question: dict[tuple[str, str, int], Node] = {}

    def rule(node: Node) -> Node | None:
        """retrieve "corpus"(query) => plus(prepare(user "fragment"), ...)"""
        if not isinstance(node, Retrieve) or not _is_known(node.query):
            return None
        asked = (node.corpus, query_text(node.query), node.limit)
        if asked not in by_question:
            texts = _checked(retrieve(*asked), node)
            by_question[asked] = Bag(tuple(Prepare(Text(text)) for text in texts), independent=True)
        return by_question[asked]

    rule.__name__ = "desugar_retrieve"
    return rule


def query_text(node: Node) -> str:
    """The text to look for: messages concatenated, children of plus one per line."""
    if isinstance(node, Text | Fragment):
        return node.content
    separator = ""
    if isinstance(node, Bag):
        separator = "\n" if node.independent else node.separator
    return separator.join(map(query_text, children_of(node)))


def _is_known(query: Node) -> bool:
    """Whether the query's text is known; a nested Retrieve must be rewritten first."""
    return not any(isinstance(below, Generate | Chat | Retrieve) for below in distinct(query))


def _checked(texts: Sequence[str], node: Retrieve) -> Sequence[str]:
    if isinstance(texts, str) or not isinstance(texts, Sequence):
        raise QueryError(
            f"The retrieve function returned {type_of(texts)} for corpus {node.corpus!r}; "
            "it must return a list of texts."
        )
    for text in texts:
        if not isinstance(text, str):
            raise QueryError(
                f"The retrieve function returned {type_of(text)} among the texts for "
                f"corpus {node.corpus!r}; it must return only texts."
            )
    if len(texts) > node.limit:
        raise QueryError(
            f"The retrieve function returned {len(texts)} texts for corpus {node.corpus!r}; the "
            f"limit was {node.limit}. Cut the list to the limit."
        )
    return texts


def drop_prepare(node: Node) -> Node | None:
    """seq(prepare(x), ...) => seq(x, ...), and likewise for all parents except plus

    There x attends to everything before it, so states prepared for x alone are of no use.
    """
    if isinstance(node, Bag) and node.independent:
        return None
    children = children_of(node)
    if Prepare not in map(type, children):
        return None
    bare = (child.input if isinstance(child, Prepare) else child for child in children)
    return with_children(node, tuple(bare))


def flatten_plus(node: Node) -> Node | None:
    """plus(plus(x, ...), prepare(plus(y, ...)), ...) => plus(x, ..., prepare(y), ..., ...)

    Generations in a prepared plus need no prepare: they are in the cache with their input anyway.
    """
    if not _is_plus(node) or not any(_holds_plus(child) for child in node.children):
        return None
    return Bag(tuple(_children_of_plus(node, prepared=False)), independent=True)


def _children_of_plus(node: Node, *, prepared: bool) -> Iterator[Node]:
    """The children of a plus and of those directly in it. prepared: whether it is so as a whole."""
    for child in children_of(node):
        inner = child.input if isinstance(child, Prepare) else child
        if _is_plus(inner):
            yield from _children_of_plus(inner, prepared=prepared or inner is not child)
        elif prepared and not isinstance(child, Generate | Chat | Prepare):
            yield Prepare(child)
        else:
            yield child


def _is_plus(node: object) -> bool:
    return isinstance(node, Bag) and node.independent


def _holds_plus(child: object) -> bool:
    return _is_plus(child) or (isinstance(child, Prepare) and _is_plus(child.input))


def flatten_seq(node: Node) -> Node | None:
    """seq(seq(x, y), z) => seq(x, y, z)"""
    if not isinstance(node, Seq) or not any(isinstance(child, Seq) for child in node.children):
        return None
    return Seq(tuple(_spread(node.children, lambda child: isinstance(child, Seq))))


def _spread(children: Sequence[Node], merges: Callable[[Node], bool]) -> Iterator[Node]:
    """The children, with those of joins that merge in their place; all levels at once, as one at
    a time would be quadratic."""
    for child in children:
        if merges(child):
            yield from _spread(children_of(child), merges)
        else:
            yield child


def flatten_bag(node: Node) -> Node | None:
    """bag ","(bag ","(x, y), z) => bag ","(x, y, z)

    An empty inner bag stays if there is a separator, because as a child it is followed by one.
    """
    if not isinstance(node, Bag) or node.independent:
        return None
    separator = node.separator
    if Bag not in map(type, node.children):
        return None
    if not any(_merges(child, separator) for child in node.children):
        return None
    return Bag(tuple(_spread(node.children, lambda child: _merges(child, separator))), separator)


def _merges(child: Node, separator: str) -> bool:
    return (
        isinstance(child, Bag)
        and not child.independent
        and child.separator == separator
        and bool(child.children or not separator)
    )


def drop_empty(node: Node) -> Node | None:
    """seq(user "", seq(), x) => seq(x), and likewise for plus and for a bag without a separator

    With a separator, an empty child is visible: bag ","(user "", user "x") is the text ",x".
    """
    if not isinstance(node, Seq | Bag) or (isinstance(node, Bag) and node.separator):
        return None
    children = children_of(node)
    kept = tuple(child for child in children if not _is_empty(child))
    return None if len(kept) == len(children) else with_children(node, kept)


def _is_empty(node: Node) -> bool:
    if isinstance(node, Prepare):
        node = node.input
    if isinstance(node, Text | Fragment):
        return not node.content
    return isinstance(node, Seq | Bag) and not node.children


def unwrap_single(node: Node) -> Node | None:
    """seq(x) => x and bag ""(x) => x, unless x is a generation

    A generation keeps the node around it: as a child of a plus it would be read together with its
    input. A plus stays even around one child, because the child must not attend to the text before
    it. Even with no text before it, the child is computed as a plus has it, so that other prompts
    reuse its states at any position. A bag with a separator stays too: it makes one
    message of its child and the texts next to it.
    """
    if not isinstance(node, Seq | Bag) or len(node.children) != 1:
        return None
    if isinstance(node, Bag) and (node.independent or node.separator):
        return None
    (child,) = node.children
    return None if isinstance(child, Generate | Chat) else child


def distribute_plus(node: Node) -> Node | None:
    """plus(generate(x), ...) => plus(generate(plus(x)), ...)

    Input and output tokens are then in one span, so the answer is found in the cache where the
    engine left it: after its input (the dual output paradox, Fig. 8). To the model x means the
    same, because nothing comes before it. An input that is a plus already has a span. An input
    that is itself a generation stays the text of an answer, and gets its span once it is text.
    """
    if not isinstance(node, Bag) or not node.independent:
        return None
    if not any(_lacks_span(child) for child in node.children):
        return None
    return Bag(tuple(map(_with_span, node.children)), independent=True)


def _lacks_span(node: Node) -> bool:
    return isinstance(node, Generate) and not (
        isinstance(node.input, Generate | Chat)
        or (isinstance(node.input, Bag) and node.input.independent)
    )


def _with_span(node: Node) -> Node:
    if isinstance(node, Generate) and _lacks_span(node):
        return Generate(Bag((node.input,), independent=True), node.sampling)
    return node


_SEPARATOR = "\n"  # between the answers that a judge higher up reads


def reduce_tree(arity: int) -> Callable[[Node], Node | None]:
    """The rule for generations that read more than `arity` (at least 2) children of one join.

    Raises QueryError for a smaller arity.
    """
    if isinstance(arity, bool) or not isinstance(arity, int) or arity < 2:
        raise QueryError(f"arity is {arity!r}; it must be an integer of at least 2.")

    def rule(node: Node) -> Node | None:
        """generate(plus(a, b, c, d)) => generate(bag(generate(plus(a, b)), generate(plus(c, d))))

        Texts before and after the join are repeated around each part, and the settings are kept.
        A generation is unchanged if it reads several such joins, since each part of one would have
        to be judged with each part of the other. It is also unchanged if the texts around the join
        contain answers, since these would be generated again for each part.
        """
        if not isinstance(node, Generate):
            return None
        parts = node.input.children if isinstance(node.input, Seq) else (node.input,)
        wide = [index for index, part in enumerate(parts) if _is_wide(part, arity)]
        if len(wide) != 1:
            return None
        before, join, after = parts[: wide[0]], parts[wide[0]], parts[wide[0] + 1 :]
        if any(map(awaits_answer, (*before, *after))):
            return None
        assert isinstance(join, Bag)

        def judge(join: Bag) -> Generate:
            input = Seq((*before, join, *after)) if len(parts) > 1 else join
            return Generate(input, node.sampling)

        answers = [
            judge(Bag(part, join.separator, join.independent)) if len(part) > 1 else part[0]
            for part in _split(join.children, arity)
        ]
        while len(answers) > arity:
            answers = [
                judge(Bag(part, _SEPARATOR)) if len(part) > 1 else part[0]
                for part in _split(answers, arity)
            ]
        return judge(Bag(tuple(answers), _SEPARATOR))

    rule.__name__ = "reduce_tree"
    return rule


def _is_wide(node: object, arity: int) -> bool:
    return isinstance(node, Bag) and len(node.children) > arity


def _split(nodes: Sequence[Node], arity: int) -> list[tuple[Node, ...]]:
    """The fewest parts of at most `arity` nodes, in order; sizes differ by at most 1."""
    count = -(-len(nodes) // arity)
    bounds = [-(-index * len(nodes) // count) for index in range(count + 1)]
    return [tuple(nodes[bounds[i] : bounds[i + 1]]) for i in range(count)]
