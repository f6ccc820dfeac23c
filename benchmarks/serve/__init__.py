"""The server measured through HTTP, beside the engine in process."""
