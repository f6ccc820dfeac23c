"""What is planned on the driver: over tables without rows, in the words of Spark."""
