"""Networks: loaded, made with random weights, and looked at by experiment."""
