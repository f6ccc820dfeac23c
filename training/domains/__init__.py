"""Kinds of rows, and what is asked of them: films, products, tickets."""
