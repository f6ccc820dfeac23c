"""Makes the magics known to IPython: `%load_ext relquery`."""

from __future__ import annotations

from typing import Any

from relquery.notebook.magic import Magic


def load_ipython_extension(shell: Any) -> None:
    """Called by IPython with its shell."""
    from IPython.core.magic import no_var_expand

    # IPython would write the values of variables into the SQL, for $name and {name}.
    magic = no_var_expand(Magic(shell))
    shell.register_magic_function(magic, "line_cell", "relquery")
