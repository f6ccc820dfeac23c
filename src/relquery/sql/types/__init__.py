"""Types of answers: their JSON Schema, and how a JSON text is read as a value of them."""
