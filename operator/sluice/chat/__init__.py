"""`sluice chat`: a conversation with a model over the public API, in a terminal or through pipes."""
