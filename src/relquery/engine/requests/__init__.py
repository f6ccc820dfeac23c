"""Requests on their way: their tokens, their labels, and the relQueries they belong to."""
