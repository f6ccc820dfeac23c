"""Runs a plan: fetches rows, makes calls, and stores the answers by row."""
