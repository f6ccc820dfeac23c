"""Providers: what their rules bill, their limits and their faults, against a stand-in server."""
