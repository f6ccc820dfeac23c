"""Running a server: health, metrics, logs, limits."""
