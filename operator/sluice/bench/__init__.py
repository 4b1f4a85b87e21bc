"""A load client that fails where a user of the official OpenAI client would, and only there.

`report = await run(Load(url=…, prompts=…, rate=5, duration=60))`. aiohttp only: it runs in every image.
"""

from sluice.bench.load import BenchError, Load, Prompt
from sluice.bench.report import Percentiles, Report
from sluice.bench.result import Result
from sluice.bench.run import run

__all__ = ["BenchError", "Load", "Percentiles", "Prompt", "Report", "Result", "run"]
