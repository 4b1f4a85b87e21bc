"""What the operator is told from outside: environment variables, read once at start.

The chart sets them; nothing else reads the environment. A wrong value ends the start with one sentence per fault.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass


class InvalidSettings(ValueError):
    """An environment variable has a value that cannot be used. The message names it and says what it must be."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How this operator runs. Times in seconds."""

    engine_image: str = "sluice/engine:dev"
    namespace: str = ""  # the one namespace to look after; empty: all of them
    interval: float = 5.0  # between two passes over one resource when nothing wakes it
    children_interval: float = 15.0  # between two checks of children that hardly ever change
    status_interval: float = 30.0  # numbers in the status move at most this often
    scrape_timeout: float = 2.0
    scrape_concurrency: int = 32
    workers: int = 10  # passes at the same time
    error_backoff_cap: float = 15.0
    pod_namespace: str = "default"  # where the Lease lives
    pod_name: str = "sluice-operator"  # who we are in the Lease
    health_port: int = 8080


def from_environment(environment: Mapping[str, str] | None = None) -> Settings:
    """Read the settings. Raises InvalidSettings."""
    env = os.environ if environment is None else environment
    default = Settings()
    return Settings(
        engine_image=env.get("SLUICE_ENGINE_IMAGE") or default.engine_image,
        namespace=env.get("SLUICE_NAMESPACE", ""),
        interval=_seconds(env, "SLUICE_INTERVAL_SECONDS", default.interval),
        pod_namespace=env.get("POD_NAMESPACE") or default.pod_namespace,
        pod_name=env.get("POD_NAME") or env.get("HOSTNAME") or default.pod_name,
        health_port=_port(env, "SLUICE_HEALTH_PORT", default.health_port),
    )


def _seconds(env: Mapping[str, str], name: str, default: float) -> float:
    text = env.get(name)
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.5 <= value <= 300:
        raise InvalidSettings(f"{name} is {text!r}: it must be a number of seconds from 0.5 to 300")
    return value


def _port(env: Mapping[str, str], name: str, default: int) -> int:
    text = env.get(name)
    if not text:
        return default
    if not text.isdecimal() or not 0 < int(text) < 65536:
        raise InvalidSettings(f"{name} is {text!r}: it must be a port from 1 to 65535")
    return int(text)
