"""Prices of providers: shipped ones with their dates and sources, and the user's own."""
