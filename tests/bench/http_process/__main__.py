"""`python -m tests.bench.http_process`: what the HTTP process costs, each figure beside its bar; exit code 1 on a miss.

Parts can be named. `python -m tests.bench http-streams` measures the same as a part of `make bench`.
"""

import sys

from tests.bench.__main__ import OUT
from tests.bench.http_process.measure import PARTS
from tests.bench.report import show

if __name__ == "__main__":
    wanted = [part for part in PARTS if part.name in sys.argv[1:] or not sys.argv[1:]]
    sys.exit(show.run(wanted, OUT, OUT / "http-process.json"))
