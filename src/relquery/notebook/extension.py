"""Makes the magics known to IPython: `%load_ext relquery`."""

from __future__ import annotations

from typing import Any

from relquery.notebook.magic import Magic


def load_ipython_extension(shell: Any) -> None:
    """Called by IPython with its shell."""
    shell.register_magic_function(Magic(shell), "line_cell", "relquery")
