"""/v1/schemas and /v1/prompts: prompt modules and the prompts over them."""
