"""What a user writes in a verb: instructions that name columns, outputs, expressions, options."""
