"""The bundle of `sluice report`: what is read, what is redacted, and how it is packed."""
