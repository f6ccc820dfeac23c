"""/v1/files and /v1/batches: files of requests that are answered in their own time."""
