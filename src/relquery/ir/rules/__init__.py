"""Rewrite rules, one per module, each `Node -> Node | None`: None if it does not apply.

A rule looks at a node and its descendants, never at its ancestors, so its result means the same
wherever the node is. Two trees mean the same if the same tokens attend to each other. A child of
`plus` attends only to itself. A generation there includes its input, but elsewhere it is only the
text of its answer. So no rule turns a generation into a child of plus, or the other way round.
Only `reduce_tree` changes what is asked, and only on request.
"""
