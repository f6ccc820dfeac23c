"""The engine in a process of its own, which may end without ending those who ask it."""
