"""Tools for agents, in the Model Context Protocol."""
