"""Calls about a row and another row, in a correlated subquery or the condition of a join: the pairs
are written down with their answers beforehand, and then looked up by the values of the rows."""
