"""The HTTP process validates requests, streams responses and drains. It does not import torch.

`serve()` is the entry point: it takes the options as text and returns the exit code.
"""

import asyncio
import os
from collections.abc import Callable, Mapping

from sluice import contract
from sluice.event_loop import loop_factory
from sluice.httpapi.garbage import collect_rarely
from sluice_engine.server.app import Server
from sluice_engine.server.engine.client import ENGINE_MODULE
from sluice_engine.server.options import OptionInvalid, parse
from sluice_engine.server.start_failure import StartFailed, write_termination_message
from sluice_engine.server.transport.sockets import PortTaken

__all__ = ["serve"]


def serve(raw: Mapping[str, str | None], say: Callable[[str], None], engine_module: str = ENGINE_MODULE) -> int:
    """Runs one engine until it is stopped. `raw` is as in `options.parse`; `say` receives one sentence per fault;
    `engine_module` is the program of the engine process.

    Returns the exit code (contract.EXIT_*).
    """
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        options, settings = parse(raw)
        collect_rarely()
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            return runner.run(_run(Server, options, settings, engine_module))
    except OptionInvalid as error:
        reason = contract.REASON_PORT_TAKEN if isinstance(error, PortTaken) else contract.REASON_INVALID_OPTION
        return _fail(say, reason, error, contract.EXIT_USAGE)
    except StartFailed as error:
        return _fail(say, error.reason, error, error.code)


async def _run(make: type[Server], *arguments: object) -> int:
    return await make(*arguments).run()  # type: ignore[arg-type]


def _fail(say: Callable[[str], None], reason: str, error: Exception, code: int) -> int:
    say(str(error))
    write_termination_message(reason, str(error))
    return code
