"""Tries in the real vLLM, as a program: python -m tests.vllm.real (see scripts/test-vllm)."""
