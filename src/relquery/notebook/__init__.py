"""IPython and Jupyter: the magics `%relquery` and `%%relquery`."""
