"""What API keys add to the HTTP process: POST /tokenize of a server with 10,000 keys and of one without, in pairs.

`python -m tests.bench.access` prints one line. Both servers run at once and are asked in turn over one connection each,
so that other load on the machine meets both; the difference is that of one pair. A request finds its key, takes from
the rates of its tenant, and gets the headers of both; `/tokenize` needs no engine, so nothing else varies.
"""

import http.client
import statistics
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from sluice_engine import tiny
from tests.engine.server.auth.keys import bearer, entry, key_file
from tests.engine.serving import JSON, serving

KEYS, PAIRS, MOST_MS = 10_000, 2000, 0.2
BODY = b'{"prompt": "What is the KV cache?"}'


def main() -> int:
    """Returns 0 if the median pair differs by at most MOST_MS."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        file = folder / "keys.yaml"
        file.write_bytes(
            key_file(*(entry(f"t{n}", requestsPerMinute=10**9, tokensPerMinute=10**9) for n in range(KEYS)))
        )
        with (
            serving(tiny.ensure(), folder / "plain") as plain,
            serving(tiny.ensure(), folder / "keyed", "--api-keys-file", str(file)) as keyed,
        ):
            one, other = (http.client.HTTPConnection("127.0.0.1", each.port) for each in (plain, keyed))
            pairs = [(_milliseconds(one), _milliseconds(other)) for _ in range(PAIRS)]
    added = statistics.median(b - a for a, b in pairs)
    before, after = (statistics.median(side) for side in zip(*pairs, strict=True))
    sys.stdout.write(
        f"{KEYS} keys add {added:.3f} ms: {before:.3f} ms without and {after:.3f} ms with, {PAIRS} pairs\n"
    )
    return 0 if added <= MOST_MS else 1


def _milliseconds(connection: http.client.HTTPConnection) -> float:
    begun = time.perf_counter()
    connection.request("POST", "/tokenize", BODY, JSON | {"Authorization": bearer("t9999")})
    answer = connection.getresponse()
    answer.read()
    if answer.status != 200:
        raise RuntimeError(f"status {answer.status}")
    return (time.perf_counter() - begun) * 1000


if __name__ == "__main__":
    sys.exit(main())
