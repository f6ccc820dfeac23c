"""Reads a text of one or more statements: parameters, and the views and macros that it uses."""
