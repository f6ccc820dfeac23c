"""`relquery serve` and `relquery keys`."""
