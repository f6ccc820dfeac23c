"""`ophr`: the exact optimum, by branch and bound over what rows have in common."""
