"""How many calls a query takes, and how many it would take if all answers were known beforehand."""
