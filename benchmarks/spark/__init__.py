"""`scripts/bench spark`: a million rows, a lost executor, and what larger tables would take."""
