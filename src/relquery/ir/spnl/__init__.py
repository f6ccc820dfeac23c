"""The JSON wire form of span queries, as defined by the public `spnl` package."""
