"""Text: tokenizer, chat template, streaming detokenizer, stop strings. No torch, no transformers."""

from sluice_engine.text.detokenize import Detokenizer
from sluice_engine.text.stops import StopScanner
from sluice_engine.text.tokenizer import Message, TextModel, TokenizerInvalid, load_text_model

__all__ = ["Detokenizer", "Message", "StopScanner", "TextModel", "TokenizerInvalid", "load_text_model"]
