"""Exit codes of the command line, besides 0 for done and 2 for usage that typer refuses."""

ERROR = 1
ROWS_LOST = 3
PENDING = 4
INTERRUPTED = 130
