"""/v1/responses in its text form."""
