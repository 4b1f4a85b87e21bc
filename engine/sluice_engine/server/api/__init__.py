"""Handlers of the data port and the admin port: body validation, the call to the engine and the response."""
