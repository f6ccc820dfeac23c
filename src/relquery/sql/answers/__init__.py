"""Turns answers into SQL values of the type that the query needs, or into row errors."""
