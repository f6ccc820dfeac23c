"""The queries of paper 000 on the local engine."""
