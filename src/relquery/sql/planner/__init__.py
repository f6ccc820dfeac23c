"""The plan of a statement: which SELECTs, which stages, and what each reads."""
