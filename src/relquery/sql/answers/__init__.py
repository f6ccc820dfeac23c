"""Answers as values of SQL: read as the type that their place asks for, or a row error."""
