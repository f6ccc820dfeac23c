"""Programs that run in the environment of one side. They import nothing of the others."""
