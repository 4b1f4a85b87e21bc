"""Prompt-lookup speculation: which drafts are tried and whether they pay. No torch."""
