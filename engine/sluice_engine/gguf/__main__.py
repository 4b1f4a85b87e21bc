"""The process of one conversion: `python -m sluice_engine.gguf FILE FOLDER DTYPE`, one JSON object per line on stdout."""

import json
import sys
from pathlib import Path

from sluice_engine.errors import ModelInvalid


def main(arguments: list[str]) -> int:
    """Convert and return 0; a failure that has a sentence is a message and 1."""
    file, folder, dtype = arguments
    try:
        from sluice_engine.gguf.dequantise import dequantise

        facts = dequantise(Path(file), Path(folder), dtype, lambda stage: _send({"stage": stage}))
    except ImportError as missing:
        _send({"invalid": f"{file} is a GGUF file, and {missing.name} is not installed: pip install 'sluice[gguf]'."})
        return 1
    except ModelInvalid as fault:
        _send({"invalid": str(fault)})
        return 1
    except OSError as fault:
        _send({"unwritable": f"{folder} cannot be written: {fault.strerror or fault}."})
        return 1
    _send(facts)
    return 0


def _send(message: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
