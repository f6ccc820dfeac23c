"""/v1/query: trees of generations in the wire form of the spnl package."""
