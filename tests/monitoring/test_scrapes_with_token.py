"""A real Prometheus reads real ports that ask for a token of reads, as the monitors tell it to, and gets nothing without."""

import asyncio
import json
from pathlib import Path
from typing import Any, Final

from sluice.auth.read_tokens import RELEASE, read_key, read_token
from sluice_gateway.replicas.read_access import ReadOptions
from tests.engine.serving import serving
from tests.gateway.engines import gateway_over
from tests.monitoring.prometheus import running
from tests.operator.runtime.test_read_access import listening
from tests.operator.security.chart_objects import stored

KEY: Final = read_key(b"k" * 32)
TOKEN: Final = read_token(KEY, RELEASE)
OWN_SERIES: Final = ("sluice_admission_limit", "sluice_gateway_replicas", "sluice_operator_leader")


def authorization(token: Path) -> dict[str, Any]:
    """What the Prometheus Operator makes of the chart's monitors, with their Secret's value in a file."""
    (monitor,) = stored("read_tokens", "PodMonitor")
    (given,) = (each["authorization"] for each in monitor["spec"]["podMetricsEndpoints"])
    return {"type": given.get("type", "Bearer"), "credentials_file": str(token)}


def configuration(urls: list[str], token: Path) -> str:
    """Two jobs over the same ports: with the token and without."""
    targets = [{"targets": [url.removeprefix("http://") for url in urls]}]
    jobs = [
        {"job_name": "with", "static_configs": targets, "authorization": authorization(token)},
        {"job_name": "without", "static_configs": targets},
    ]
    return json.dumps({"global": {"scrape_interval": "1s"}, "scrape_configs": jobs})  # JSON is YAML


async def test_prometheus_reads_engine_gateway_and_operator_with_the_token_and_none_without(
    tiny_model: Path, tmp_path: Path
) -> None:
    token, key = tmp_path / "token", tmp_path / "key"
    token.write_text(TOKEN)
    key.write_text(KEY)

    def read(urls: list[str]) -> list[tuple[str, str]]:
        """Metric and job of the series that came, once all have."""
        own = f'count by (__name__, job) ({{__name__=~"{"|".join(OWN_SERIES)}"}})'
        with running(tmp_path, "# EOF\n", configuration(urls, token)) as prometheus:
            refused = prometheus.wait('up{job="without"} == 0', len(urls))
            assert len(refused) == len(urls)
            return [
                (each["metric"]["__name__"], each["metric"]["job"]) for each in prometheus.wait(own, len(OWN_SERIES))
            ]

    with serving(tiny_model, tmp_path / "log", "--read-token-file", str(token)) as engine:
        async with (
            gateway_over(admin_port=0, reads=ReadOptions(key, is_guarded=True)) as gateway,
            listening(lambda: TOKEN) as operator,
        ):
            urls = [f"http://127.0.0.1:{engine.admin_port}", gateway.admin_url, operator]
            found = await asyncio.to_thread(read, urls)
    assert sorted(found) == [(name, "with") for name in sorted(OWN_SERIES)]
