"""How a statement is run: which SELECTs, which stages, and what each reads."""
