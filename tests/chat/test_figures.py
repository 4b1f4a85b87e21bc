"""The figures after an answer."""

from sluice.chat.conversation import figures
from sluice.completion_stream import Stream


def of(*times: float, tokens: int = 0, finish: str | None = "stop", stopped: bool = False) -> str:
    stream = Stream(pieces=["x"] * len(times), times=list(times), output_tokens=tokens, finish_reason=finish)
    return figures(stream, 100.0, stopped=stopped)


def test_the_rate_is_that_of_the_tokens_after_the_first() -> None:
    assert of(100.21, 101.0, 102.21, tokens=83) == "83 tokens, 41 tokens/s, first after 0.21 s"


def test_a_slow_answer_has_a_decimal() -> None:
    assert of(101.0, 103.0, tokens=4) == "4 tokens, 1.5 tokens/s, first after 1.00 s"


def test_one_token_has_no_rate() -> None:
    assert of(100.5, tokens=1) == "1 token, first after 0.50 s"


def test_without_usage_the_pieces_are_counted() -> None:
    assert of(100.5, 101.5, finish=None, stopped=True) == "2 tokens, 1.0 tokens/s, first after 0.50 s, stopped"


def test_the_end_at_the_maximum_is_said() -> None:
    assert of(100.5, tokens=1, finish="length") == "1 token, first after 0.50 s, ended at the maximum length"


def test_an_answer_without_text_is_said() -> None:
    assert (of(), of(stopped=True)) == ("no text", "stopped before the first token")
