"""RelQueries that arrive over time: traces, workloads, and how policies serve them (paper 003)."""
