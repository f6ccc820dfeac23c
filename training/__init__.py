"""How the bundled demo model is trained and judged: `python -m training --help`."""
