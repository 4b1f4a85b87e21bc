"""The servers of the comparison over HTTP and how each is started."""

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sluice import contract
from tests.bench.processes.server import free_ports
from tests.bench.serving.server import Command
from tests.bench.throughput.side_vllm import KV_GIBIBYTES
from tests.bench.throughput.sides import every_core, vllm_python

NAME: Final = "smollm2"
MOST_TOKENS: Final = 8192  # of a prompt and its answer
NO_TARGET: Final = "1e6"  # ms


@dataclass(frozen=True, slots=True)
class Side:
    """One server of the comparison."""

    name: str
    title: str
    command: Callable[[Path, str, int], Command]  # (model, dtype, requests at once); raises PeerUnavailable


def _sluice(model: Path, dtype: str, at_once: int) -> Command:
    port, admin_port = free_ports(2)
    command = [sys.executable, "-m", "sluice", "serve", str(model), "--served-name", NAME, "--dtype", dtype]
    command += ["--port", str(port), "--admin-port", str(admin_port), "--max-model-length", str(MOST_TOKENS)]
    command += ["--kv-size", f"{KV_GIBIBYTES}Gi"]
    command += ["--ttft-ms", NO_TARGET, "--itl-ms", NO_TARGET, "--concurrency-min", str(at_once)]
    return Command(command, port, contract.PATH_HEALTH, {})


def _vllm(environment: Callable[[str], Mapping[str, str]]) -> Callable[[Path, str, int], Command]:
    def of(model: Path, dtype: str, _: int) -> Command:
        python, (port,) = vllm_python(), free_ports(1)
        command = [python, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model), "--dtype", dtype]
        command += ["--served-model-name", NAME, "--port", str(port), "--max-model-len", str(MOST_TOKENS)]
        more = {"VLLM_CPU_KVCACHE_SPACE": os.environ.get("VLLM_CPU_KVCACHE_SPACE", KV_GIBIBYTES)}
        return Command(command, port, "/health", more | dict(environment(python)))

    return of


OURS: Final = Side("ours", "Sluice", _sluice)
PEERS: Final = (
    Side("vllm", "vLLM, CPU build", _vllm(lambda _: {})),
    Side("vllm-cores", "vLLM, CPU build, told to use all cores", _vllm(every_core)),
)
