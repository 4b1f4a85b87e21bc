"""For each alert, series by which it fires and series by which it must not, in promtool's notation (start+step x times).

Each case is a story over minutes, one sample a minute. `firing` is judged after `minutes`.
"""

from dataclasses import dataclass

DEPLOYMENT = 'namespace="apps",llmdeployment="chat"'
POD = f'{DEPLOYMENT},pod="chat-1"'


@dataclass(frozen=True)
class Case:
    """Input series by name and labels, and whether the alert fires after so many minutes."""

    alert: str
    story: str
    series: dict[str, str]
    minutes: int
    firing: bool


def _requests(
    met: str, missed: str, errors: str = "0x400", again: str = "0x400", rejected: str = "0x400"
) -> dict[str, str]:
    """Counters of one engine: requests that met and missed the SLO, errors, and rejections at this and other replicas."""
    return {
        f'sluice_slo_requests_total{{{POD},result="met"}}': met,
        f'sluice_requests_total{{{POD},outcome="stop"}}': met,
        f'sluice_requests_total{{{POD},outcome="length"}}': missed,
        f'sluice_requests_total{{{POD},outcome="error"}}': errors,
        f'sluice_requests_total{{{POD},outcome="rejected"}}': rejected,
        f'sluice_requests_total{{{POD},outcome="abort"}}': "0+50x400",
        f'sluice_rejections_total{{{POD},reason="queue_full"}}': rejected,
        f"sluice_requests_offered_again_total{{{POD}}}": again,
    }


def _pair(
    alert: str, minutes: int, fires: dict[str, str], quiet: dict[str, str], stories: tuple[str, str]
) -> tuple[Case, Case]:
    return Case(alert, stories[0], fires, minutes, True), Case(alert, stories[1], quiet, minutes, False)


def _engine(running: str, busy: str) -> dict[str, str]:
    return {f"sluice_requests_running{{{POD}}}": running, f"sluice_busy_seconds_total{{{POD}}}": busy}


def _cache(occupancy: str, preemptions: str) -> dict[str, str]:
    return {f"sluice_kv_occupancy_ratio{{{POD}}}": occupancy, f"sluice_preemptions_total{{{POD}}}": preemptions}


def _model(error: str, steps: str) -> dict[str, str]:
    return {f"sluice_step_model_error_ratio{{{POD}}}": error, f"sluice_step_model_steps{{{POD}}}": steps}


def _streams(broken: str, resumed: str) -> dict[str, str]:
    where = '{namespace="sluice-system",pod="gateway-1"}'
    return {
        f"sluice_gateway_broken_streams_total{where}": broken,
        f"sluice_gateway_resumed_streams_total{where}": resumed,
    }


def _passes(failed: str) -> dict[str, str]:
    name = "sluice_operator_reconcile_total"
    return {
        f'{name}{{namespace="sluice-system",result="ok"}}': "0+60x60",
        f'{name}{{namespace="sluice-system",result="error"}}': failed,
    }


def _up(job: str, value: str, pod: str = "a") -> dict[str, str]:
    return {f'up{{job="{job}",namespace="apps",pod="{pod}"}}': value}


_FILE = f'sluice_mounted_file_fault{{{POD},file="api_keys"}}'
_OUT = 'sluice_gateway_replicas{namespace="sluice-system",pod="gateway-1",state="out"}'
_HELD = 'sluice_gateway_requests_held{namespace="sluice-system",pod="gateway-1"}'
_DENIED = 'sluice_gateway_retries_denied_total{namespace="sluice-system",pod="gateway-1"}'
_FAILED = 'sluice_operator_scrape_failures_total{namespace="sluice-system",pod="operator-1"}'
_LEADER = 'sluice_operator_leader{namespace="sluice-system",pod="%s"}'
_LOST = f"sluice_metrics_faults_total{{{POD}}}"

CASES = (
    *_pair(
        "SluiceSLOBudgetBurnsFast", 70, _requests("0+80x400", "0+20x400"), _requests("0+90x400", "0+10x400"),
        ("a fifth of the requests is late for an hour", "a tenth is late: less than 14.4 times the budget"),
    ),
    Case(
        "SluiceSLOBudgetBurnsFast", "it was bad for an hour and is good for six minutes",
        _requests("0+80x70 5600+100x100", "0+20x70 1400+0x100"), 77, False,
    ),
    Case("SluiceSLOBudgetBurnsFast", "no traffic", _requests("0x100", "0x100"), 70, False),
    *_pair(
        "SluiceSLOBudgetBurnsSlowly", 390, _requests("0+90x400", "0+10x400"), _requests("0+96x400", "0+4x400"),
        ("a tenth is late for six hours", "4 % is late for six hours"),
    ),
    *_pair(
        "SluiceRequestsFail", 15, _requests("0+97x60", "0x60", "0+3x60"), _requests("0+1000x60", "0x60", "0+5x60"),
        ("3 % of the requests end with an error", "half a percent does"),
    ),
    *_pair(
        "SluiceRequestsAreLost", 20, _requests("0+90x60", "0x60", rejected="0+10x60"),
        _requests("0+90x60", "0x60", rejected="0+10x60", again="0+10x60"),
        ("a tenth is rejected by every replica", "a tenth is rejected by one replica and taken over by another"),
    ),
    *_pair(
        "SluiceRequestsAreHeld", 15, {_HELD: "2x30"}, {_HELD: "2x5 0x30"},
        ("two requests are held for a quarter of an hour", "a cold start of five minutes"),
    ),
    *_pair(
        "SluiceEngineIsDown", 15, _up("sluice-engine", "0x30"), _up("sluice-engine", "0x5 1x30"),
        ("an engine does not answer", "an engine starts within five minutes"),
    ),
    *_pair(
        "SluiceEngineIsStuck", 20, _engine("3x40", "100x40"), _engine("3x40", "100+30x40"),
        ("requests run and no step ends", "requests run and steps end"),
    ),
    Case("SluiceEngineIsStuck", "an idle engine", _engine("0x40", "100x40"), 20, False),
    *_pair(
        "SluiceKVCacheIsFull", 20, _cache("0.99x40", "0+30x40"), _cache("0.99x40", "0x40"),
        ("a full cache that preempts", "a full cache that holds what runs"),
    ),
    *_pair(
        "SluiceStepModelIsWrong", 45, _model("0.8x60", "5000x60"), _model("0.8x60", "200x60"),
        ("a wrong model after many steps", "a wrong model after few steps"),
    ),
    *_pair(
        "SluiceMountedFileIsInvalid", 10, {_FILE: "1x20"}, {_FILE: "1x2 0x20"},
        ("a key file with a mistake", "a mistake that is corrected"),
    ),
    *_pair("SluiceMeasurementsAreLost", 10, {_LOST: "0x5 1x20"}, {_LOST: "0x30"}, ("one fault", "no fault")),
    *_pair(
        "SluiceGatewayIsDown", 10, _up("sluice-gateway", "0x30") | _up("sluice-gateway", "0x30", "b"),
        _up("sluice-gateway", "0x30") | _up("sluice-gateway", "1x30", "b"),
        ("both gateways are down", "one of two gateways is down"),
    ),
    *_pair("SluiceReplicasAreOut", 15, {_OUT: "1x30"}, {_OUT: "1x5 0x30"}, ("a replica stays out", "it comes back")),
    *_pair("SluiceRetriesAreDenied", 20, {_DENIED: "0+6x40"}, {_DENIED: "6x40"}, ("retries are denied", "they were once")),
    *_pair(
        "SluiceStreamsBreak", 20, _streams("0+6x40", "0+1x40"), _streams("0+6x40", "0+6x40"),
        ("streams break", "each broken stream is resumed"),
    ),
    *_pair(
        "SluiceOperatorIsDown", 10, _up("sluice-operator", "0x30"), _up("sluice-operator", "1x30"),
        ("the operator does not answer", "it does"),
    ),
    Case("SluiceOperatorIsDown", "there is no operator at all", _up("sluice-engine", "1x30"), 10, True),
    *_pair(
        "SluiceOperatorHasNoLeader", 10, {_LEADER % "a": "0x30", _LEADER % "b": "0x30"},
        {_LEADER % "a": "1x4 0x30", _LEADER % "b": "0x5 1x30"},
        ("neither of two operators leads", "the other takes over"),
    ),
    *_pair("SluicePassesFail", 30, _passes("0+20x60"), _passes("0+2x60"), ("a quarter of the passes fails", "3 % does")),
    *_pair("SluiceScrapesFail", 30, {_FAILED: "0+3x60"}, {_FAILED: "3x60"}, ("scrapes fail", "they failed once")),
)  # fmt: skip
