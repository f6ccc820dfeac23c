"""Networks: loading them, making them with random weights, and probing them."""
