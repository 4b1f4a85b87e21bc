"""The way of a request from the clients' port to a replica and back."""
