"""`make clients`: runs unchanged clients against real servers; the exit code is 1 if a feature does not work.

`python -m tests.clients openai-python litellm` runs some clients, `ci` those of CI, no name all of them. `--write` stores
the results in RESULTS.md and results.json.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.bench.report.measured_code import Code, describe
from tests.clients import environment, servers, table
from tests.clients.catalogue import HERE, Client, chosen
from tests.clients.outcomes import Outcome, Result, read

LOGS = Path(".out") / "clients"


def main() -> int:
    """Runs the chosen clients; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.clients", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("clients", nargs="*", help="names of clients, or ci; all by default")
    parser.add_argument("--write", action="store_true", help="store the results")
    given = parser.parse_args()
    try:
        clients = chosen(given.clients)
    except ValueError as error:
        parser.error(str(error))
    LOGS.mkdir(parents=True, exist_ok=True)
    code = describe()
    results: list[Result] = []
    with tempfile.TemporaryDirectory(prefix="sluice-clients-") as folder, servers.running(Path(folder)) as told:
        for client in clients:
            results.append(run(client, told, code))
            if given.write:
                table.write(results)
    failed = table.faults(results)
    for name, outcome in failed:
        _say(f"✗ {name}, {outcome.feature}: {outcome.detail}")
    _say(f"{len(results)} clients, {sum(len(result.outcomes) for result in results)} features, {len(failed)} faults")
    return 1 if failed else 0


def run(client: Client, told: dict[str, str], code: Code) -> Result:
    """Installs the client, runs its driver and reads what it reports."""
    began = time.monotonic()
    try:
        command = environment.ensure(client)
        installed = time.monotonic()
        outcomes, version = _drive(client, command, told), environment.version(client)
    except environment.NotInstalled as error:
        installed = time.monotonic()
        outcomes, version = (Outcome("text", False, f"not installed: {error}"),), "not installed"
    result = Result(client.name, version, code.digest, code.commit or "no commit known", outcomes)
    marks = "".join(outcome.mark for outcome in outcomes)
    took = f"{installed - began:.0f} s to install, {time.monotonic() - installed:.0f} s to run"
    _say(f"{client.name} {version}: {marks} ({took})")
    return result


def _drive(client: Client, command: list[str], told: dict[str, str]) -> tuple[Outcome, ...]:
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    env = kept | told | {"PYTHONPATH": str(HERE / "shared"), "PYTHONDONTWRITEBYTECODE": "1"}
    with (LOGS / f"{client.name}.log").open("w") as log:
        try:
            done = subprocess.run(
                command, env=env, stdout=subprocess.PIPE, stderr=log, text=True, timeout=client.seconds, check=False
            )
            printed, end = done.stdout, f"the driver ended with {done.returncode}; see {log.name}"
        except subprocess.TimeoutExpired as error:
            printed = error.stdout.decode() if isinstance(error.stdout, bytes) else error.stdout or ""
            end = f"the driver did not end within {client.seconds} s"
        log.write(printed)
    return read(printed.splitlines(), end)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
