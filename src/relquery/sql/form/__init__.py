"""Rewrites one SELECT into a plain form that fixes where each call is made and for which rows."""
