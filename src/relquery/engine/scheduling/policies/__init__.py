"""Policies by name, and the steps that they share."""
