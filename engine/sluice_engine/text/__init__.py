"""Text: tokenizer, chat template, streaming detokenizer, stop strings, growing answers. No torch, no transformers."""

from sluice_engine.text.choice import Choice, Piece
from sluice_engine.text.detokenize import Detokenizer
from sluice_engine.text.stops import StopScanner
from sluice_engine.text.tokenizer import Message, TextModel, TokenizerInvalid, load_text_model
from sluice_engine.text.trail import Entry

__all__ = [
    "Choice",
    "Detokenizer",
    "Entry",
    "Message",
    "Piece",
    "StopScanner",
    "TextModel",
    "TokenizerInvalid",
    "load_text_model",
]
