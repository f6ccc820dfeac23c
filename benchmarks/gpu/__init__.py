"""What is measured on a GPU, when there is one: `python -m benchmarks.gpu`."""
