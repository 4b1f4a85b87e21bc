"""An engine on aggregate counts instead of single tokens and blocks, for long traces."""
