"""The engine as a service: relQueries from any thread, one thread that serves them."""
