"""What providers charge: shipped prices with their dates and sources, and the user's own."""
