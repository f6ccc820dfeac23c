"""What runs in vLLM's environment, each as a program that prints JSON."""
