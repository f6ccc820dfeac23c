"""Rewrite rules, one a module, each `Node -> Node | None`: None where it does not apply.

A rule looks at a node and at what is below it, never at what is above: what it gives back means the
same wherever the node stands. To mean the same is to attend to the same. Below `plus` a child
attends only to itself, and a generation stands with its input, where elsewhere it is the text of
its answer; so no rule makes a generation the child of a plus that was not, or the reverse.
`reduce_tree` alone changes what is asked, on demand.
"""
