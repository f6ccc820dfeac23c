"""A tree in other forms: as text, as a picture, as wire JSON, as tokens."""
