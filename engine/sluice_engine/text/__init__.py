"""Text: tokenizer, chat template, streaming detokenizer, stop strings."""
