"""Execution of a plan, and its dry run on stand-ins for answers."""
