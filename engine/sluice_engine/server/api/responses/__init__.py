"""POST /v1/responses: translated to a chat and back. Nothing is stored, so a conversation is sent whole each time."""
