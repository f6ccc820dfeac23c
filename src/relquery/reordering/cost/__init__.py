"""The cost of a schedule: hits on tokens, prices of providers, bills, weights of a hit."""
