"""Trees of all nodes, small enough that rules meet in them often."""

from __future__ import annotations

from hypothesis import strategies as st

from relquery.ir.nodes import Bag, Chat, Fragment, Generate, Node, Prepare, Retrieve, Seq, Text
from relquery.prompt import SPEAKERS, Sampling

words = st.sampled_from(["", "a", "b", "\n", '"é', "  "])
leaves = st.builds(Text, words, st.sampled_from(SPEAKERS)) | st.builds(Fragment, words)
samplings = st.builds(Sampling, max_tokens=st.integers(1, 2), stop=st.just(()) | st.just(("x",)))


def _joins(children: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    several = st.lists(children, max_size=5).map(tuple)
    return (
        st.builds(Seq, several)
        | st.builds(Bag, several, st.sampled_from(["", ",", "\n"]))
        | st.builds(Bag, several, independent=st.just(True))
        | st.builds(Generate, children, samplings)
        | st.builds(Chat, several, samplings)
        | st.builds(Prepare, children)
    )


def _joins_and_retrievals(children: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    return _joins(children) | st.builds(Retrieve, children, st.just("wiki"), st.integers(1, 3))


# Without Retrieve, then with it.
local_queries = st.recursive(leaves, _joins, max_leaves=14)
queries = st.recursive(leaves, _joins_and_retrievals, max_leaves=14)
