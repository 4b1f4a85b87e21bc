"""The process that compiles grammars on trial: `python -m sluice_engine.grammar.check_process`.

It reads one JSON object per line, `{"grammar": {…}, "seconds": 0.8}`, and writes one per grammar, `{"fault": "…",
"seconds": 0.003}`, with an empty fault if the grammar can be enforced. What a hostile grammar may cost (a full stack,
memory, seconds) is borne here: SIGPROF ends the process when a compilation has had its seconds of processor time.
"""

import json
import resource
import signal
import sys
import time
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
        given, fault, begun = json.loads(line), "", time.process_time()
        signal.setitimer(signal.ITIMER_PROF, given["seconds"])
        try:
            check(Grammar(**given["grammar"]))
        except GrammarInvalid as error:
            fault = str(error)
        except (MemoryError, RecursionError, ValueError) as error:
            fault = f"it is too complex ({type(error).__name__})"
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        sys.stdout.write(json.dumps({"fault": fault, "seconds": time.process_time() - begun}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
