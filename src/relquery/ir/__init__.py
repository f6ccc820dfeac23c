"""The tree that every way of asking becomes: nodes, their text form, their prompt."""
