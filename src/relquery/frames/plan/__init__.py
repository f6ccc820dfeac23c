"""A frame as a tree of verbs, and the SQL statement that it becomes."""
