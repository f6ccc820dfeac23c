"""Queries of type T5 of paper 000: passages are found, and a call answers from them."""
