"""What runs in the tasks of Spark, on every machine."""
