"""What a model is before it is loaded: its URI, files, quantisation, and what this version can serve."""
