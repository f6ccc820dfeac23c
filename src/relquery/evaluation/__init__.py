"""Scores a query against right answers, and compares two scores."""
