"""`ophr`: the exact optimum, by branch and bound over the sets that rows share."""
