"""The rules that each golden file is about; rules with arguments have them here."""

from __future__ import annotations

from relquery.ir.rewrite import Rule
from relquery.ir.rules.desugar_chat import desugar_chat
from relquery.ir.rules.desugar_fragment import desugar_fragment
from relquery.ir.rules.desugar_retrieve import desugar_retrieve
from relquery.ir.rules.distribute_plus import distribute_plus
from relquery.ir.rules.drop_empty import drop_empty
from relquery.ir.rules.drop_prepare import drop_prepare
from relquery.ir.rules.flatten_bag import flatten_bag
from relquery.ir.rules.flatten_plus import flatten_plus
from relquery.ir.rules.flatten_seq import flatten_seq
from relquery.ir.rules.reduce_tree import reduce_tree
from relquery.ir.rules.unwrap_single import unwrap_single


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
