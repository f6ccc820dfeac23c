"""What asks the server, each in a process of its own."""
