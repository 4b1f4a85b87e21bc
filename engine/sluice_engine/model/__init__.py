"""transformers' model classes with this engine's paged attention."""
