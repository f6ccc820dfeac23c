"""Whether the order of the fields changes answers: some inputs are asked in both orders."""
