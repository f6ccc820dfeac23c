"""The rules that each golden file is about; rules with arguments have them here."""

from __future__ import annotations

from relquery.ir.optimize import Rule
from relquery.ir.rules import (
    desugar_chat,
    desugar_fragment,
    desugar_retrieve,
    distribute_plus,
    drop_empty,
    drop_prepare,
    flatten_bag,
    flatten_plus,
    flatten_seq,
    reduce_tree,
    unwrap_single,
)


def look_up(corpus: str, text: str, limit: int) -> list[str]:
    """As many fragments as asked for, which say what was asked; corpus `empty` has none."""
    return [] if corpus == "empty" else [f"{corpus} {i}: {text}" for i in range(1, limit + 1)]


RULES: dict[str, tuple[Rule, ...]] = {
    "desugar_chat": (desugar_chat,),
    "desugar_fragment": (desugar_fragment, drop_prepare),
    "desugar_retrieve": (desugar_retrieve(look_up),),
    "drop_prepare": (drop_prepare,),
    "flatten_plus": (flatten_plus,),
    "flatten_seq": (flatten_seq,),
    "flatten_bag": (flatten_bag,),
    "drop_empty": (drop_empty,),
    "unwrap_single": (unwrap_single,),
    "distribute_plus": (distribute_plus,),
    "reduce_tree": (reduce_tree(2),),
}
