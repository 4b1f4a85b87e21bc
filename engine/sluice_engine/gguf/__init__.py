"""GGUF files: dequantised once by transformers into a folder of safetensors, which the engine loads as any other.

Importing this package loads neither torch nor transformers: a conversion runs in a process of its own.
"""

from sluice_engine.gguf.find import find_gguf
from sluice_engine.gguf.process import CONVERTED_DTYPES, Stage, convert

__all__ = ["CONVERTED_DTYPES", "Stage", "convert", "find_gguf"]
