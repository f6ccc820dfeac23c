"""What a ledger tells a person: its runs, what answers have cost, and which calls failed."""
