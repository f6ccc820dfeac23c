"""`python -m relquery`: the command line."""

from __future__ import annotations

from relquery.cli import main

if __name__ == "__main__":
    main()
