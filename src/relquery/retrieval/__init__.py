"""The texts that are nearest to a text: passages for a question, and near-duplicates."""
