"""Runs a plan, or tries it on stand-ins for its answers."""
