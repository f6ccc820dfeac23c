"""`relquery sql`."""
