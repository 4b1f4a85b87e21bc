"""Completions and chats: a body becomes a `Generation`, the engine's tokens become a response, streamed or collected."""
