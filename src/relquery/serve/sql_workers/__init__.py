"""Statements of clients, each in a process of its own with limits of the system."""
