"""`scripts/bench cascade`: the guarantee of a cascade, and its calls beside those of others."""
