"""What those need who run a server: health, metrics, logs and traces."""
