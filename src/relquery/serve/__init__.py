"""The server: an engine behind HTTP, in the forms that existing clients speak."""
