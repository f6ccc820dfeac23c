"""Files of models: their weights and configurations."""
