"""Bringing one SELECT into a plain form, in which each call has its place and its rows."""
