"""The JSON wire form of span queries, as the public `spnl` package has it."""
