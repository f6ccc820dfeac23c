"""Networks that do not take an attention function, made to run on ours."""
