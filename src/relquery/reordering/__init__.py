"""Tables as integers, and solvers that order them so that prompts share prefixes."""
