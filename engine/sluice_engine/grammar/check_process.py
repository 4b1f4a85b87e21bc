"""The process that compiles grammars on trial: `python -m sluice_engine.grammar.check_process`.

It reads one JSON grammar per line and writes one line per grammar, `{"fault": "…"}`, empty if it can be enforced. What
a hostile grammar may cost (a full stack, memory, seconds) is borne here.
"""

import json
import resource
import sys
from typing import Final

from sluice_engine.grammar.compiler import check
from sluice_engine.grammar.grammar import Grammar, GrammarInvalid

MEMORY: Final = 2 * 2**30  # bytes of address space


def main() -> None:
    """Serve until the end of the input."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for line in sys.stdin:
        fault = ""
        try:
            check(Grammar(**json.loads(line)))
        except GrammarInvalid as error:
            fault = str(error)
        except (MemoryError, RecursionError, ValueError) as error:
            fault = f"it is too complex ({type(error).__name__})"
        sys.stdout.write(json.dumps({"fault": fault}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
