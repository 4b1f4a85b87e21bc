"""A load client with the retries of the official OpenAI client: it fails exactly where a user of that client would.

`report = await run(Load(url=…, prompts=…, rate=5, duration=60))`. It needs aiohttp only, so it runs in every image.
"""

from sluice.bench.load import BenchError, Load, Prompt
from sluice.bench.report import Percentiles, Report
from sluice.bench.result import Result
from sluice.bench.run import run

__all__ = ["BenchError", "Load", "Percentiles", "Prompt", "Report", "Result", "run"]
