"""What a schedule costs: hits on tokens, prices of providers, bills, weights of a hit."""
