"""JSON Schemas of answers: as providers get them, and as the local engine follows them."""
