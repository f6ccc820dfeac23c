"""What clients say about their relQueries."""
