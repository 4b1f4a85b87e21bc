"""One file per command; each has `register(app)`."""
