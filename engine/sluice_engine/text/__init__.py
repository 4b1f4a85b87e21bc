"""Text processing: tokenizer, chat template, streaming detokenizer, stop strings, incremental outputs. No torch or
transformers.
"""

from sluice_engine.text.chat_template import Ending
from sluice_engine.text.detokenizer import Detokenizer
from sluice_engine.text.logprob_buffer import Entry
from sluice_engine.text.output import Choice, Display, Piece
from sluice_engine.text.stop_strings import StopScanner
from sluice_engine.text.tokenizer import Message, TextModel, TokenizerInvalid, load_text_model

__all__ = [
    "Choice",
    "Detokenizer",
    "Display",
    "Ending",
    "Entry",
    "Message",
    "Piece",
    "StopScanner",
    "TextModel",
    "TokenizerInvalid",
    "load_text_model",
]
