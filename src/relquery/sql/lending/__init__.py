"""Tables that frames lend a connection, and their turns with it."""
