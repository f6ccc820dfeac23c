"""Policies that order whole relQueries (paper 003), and their priorities."""
