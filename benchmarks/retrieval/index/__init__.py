"""An index over many made-up passages, in processes of its own."""
