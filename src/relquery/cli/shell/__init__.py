"""The shell that `relquery sql` opens when it is given no query."""
