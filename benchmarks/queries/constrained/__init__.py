"""Answers that must be a STRUCT, beside free text of the same length."""
