"""One step: blocks taken, cached states moved, work cut into chunks."""
