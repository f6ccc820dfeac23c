"""`scripts/bench vllm`: policies of relquery inside a vLLM server."""
