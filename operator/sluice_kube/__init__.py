"""Access to an API server for the operator and the gateway: connect, request, and mirror a collection by a watch."""
