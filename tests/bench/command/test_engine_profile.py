"""A profile measured at a real engine."""

from sluice.bench import Load, Prompt
from sluice.bench.engine_profile import default_admin_url, measure
from sluice_perfmodel.profile_file import parse_profile_file
from tests.engine.serving import Served


async def test_an_engine_is_measured_into_a_profile_that_its_file_keeps(served: Served) -> None:
    load = Load(url=f"http://127.0.0.1:{served.port}", prompts=(Prompt("unused"),), concurrency=1, requests=1)
    said: list[str] = []
    admin = f"http://127.0.0.1:{served.admin_port}"
    profile = await measure(load, admin, "2026-11-24", said.append, concurrencies=(1, 3))
    assert profile.model.steps >= 64
    assert profile.kv_tokens == served.blocks()["total"] * 16
    assert profile.longest_prompt > 256  # the longest of the prompts that fit into the tiny model's context
    assert profile.words == f"tiny (float32) at http://127.0.0.1:{served.port}, measured 2026-11-24"
    assert parse_profile_file(profile.to_json()) == profile
    assert said[1:] == [
        "part 1 of 4: 8 requests with short prompts, 1 at a time",
        "part 2 of 4: 8 requests with long prompts, 1 at a time",
        "part 3 of 4: 8 requests with short prompts, 3 at a time",
        "part 4 of 4: 8 requests with long prompts, 3 at a time",
    ]


def test_the_admin_port_is_looked_for_on_the_host_of_the_server() -> None:
    assert default_admin_url("https://gpu.example:9000") == "http://gpu.example:8001"
    assert default_admin_url("http://[::1]:8000") == "http://[::1]:8001"
