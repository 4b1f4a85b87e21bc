"""The model class of transformers with our paged attention."""
