"""What all commands share: options, tables, progress, exit codes."""
