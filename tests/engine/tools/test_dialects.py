"""Every notation: calls and text, however the text is cut; what is no call stays text."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice_engine.text.reasoning import ReasoningSplitter
from sluice_engine.tools import ArgumentsDelta, CallBegun, Dialect, TextDelta, dialect_of, parser_of, why_dialect
from sluice_engine.tools.dialects import NOTATIONS

NAMES = frozenset({"get_weather", "add"})
WEATHER = '{"name": "get_weather", "arguments": {"city": "Zür\\"ich {", "days": [1, 2]}}'
ADD = '{"arguments": {"a": 1}, "name": "add"}'
CODER_ADD = "<function=add>\n<parameter=a>\n1\n</parameter>\n</function>"
CODER_WEATHER = '<function=get_weather>\n<parameter=city>\nZür"ich {\n</parameter>\n<parameter=days>\n[1, 2]\n</parameter>\n</function>'
SCHEMAS: dict[str, dict[str, Any]] = {
    "add": {"properties": {"a": {"type": "integer"}}},
    "get_weather": {"properties": {"city": {"type": "string"}, "days": {"type": "array"}}},
}


def read(dialect: Dialect, pieces: list[str], **options: Any) -> tuple[str, list[tuple[str, str]]]:
    """The text of an answer and its calls as (name, arguments)."""
    parser = parser_of(dialect, NAMES, schemas=SCHEMAS, **options)
    events = [event for piece in pieces for event in parser.feed(piece)] + parser.finish()
    text, calls = "", dict[int, tuple[str, str]]()
    for event in events:
        match event:
            case TextDelta(more):
                text += more
            case CallBegun(index, name):
                assert index == len(calls)
                calls[index] = (name, "")
            case ArgumentsDelta(index, more):
                calls[index] = (calls[index][0], calls[index][1] + more)
    return text, list(calls.values())


W = ("get_weather", '{"city": "Zür\\"ich {", "days": [1, 2]}')
A = ("add", '{"a": 1}')
CASES: list[tuple[Dialect, str, str, list[tuple[str, str]]]] = [
    ("hermes", f"<tool_call>\n{WEATHER}\n</tool_call>", "", [W]),
    ("hermes", f"Let me see.\n<tool_call>{WEATHER}</tool_call>\n<tool_call>\n{ADD}\n</tool_call>", "Let me see.\n", [W, A]),
    ("hermes", "no call < at all <tool", "no call < at all <tool", []),
    ("hermes", '<tool_call>{"name": "rm", "arguments": {}}</tool_call>', '<tool_call>{"name": "rm", "arguments": {}}</tool_call>', []),
    ("hermes", '<tool_call>\n{"name": "add"}\n</tool_call>', "", [("add", "{}")]),
    ("hermes", '<tool_call>{"name": "add", "arguments": "{\\"a\\": 1}"}</tool_call>', "", [A]),
    ("hermes", '<tool_call>{"name": "add", "arguments": [1, 2]}</tool_call>', "", [("add", "[1, 2]")]),
    ("llama", '{"parameters": 5, "name": "add"}', "", [("add", "5")]),
    ("hermes", "<tool_call>soon</tool_call>", "<tool_call>soon</tool_call>", []),
    ("hermes", '<tool_call>{"name": ', '<tool_call>{"name": ', []),
    ("llama", '{"name": "add", "parameters": {"a": 1}}', "", [A]),
    ("llama", '<|python_tag|>{"name": "add", "parameters": {"a": 1}}; ' + WEATHER, "", [A, W]),
    ("llama", '{"answer": 42}', '{"answer": 42}', []),
    ("llama", "Plain words {not a call}", "Plain words {not a call}", []),
    ("mistral", f"[TOOL_CALLS] [{WEATHER}, {ADD}]", "", [W, A]),
    ("mistral", f"Sure. [TOOL_CALLS][{ADD}]", "Sure. ", [A]),
    ("mistral", "[1, 2] is a list", "[1, 2] is a list", []),
    ("mistral_args", '[TOOL_CALLS]get_weather[ARGS]{"city": "Zür\\"ich {", "days": [1, 2]}', "", [W]),
    ("mistral_args", 'So: [TOOL_CALLS]add[ARGS]{"a": 1}[TOOL_CALLS]add[ARGS]{"a": 1}', "So: ", [A, A]),
    ("mistral_args", '[TOOL_CALLS]add[CALL_ID]1f9c[ARGS]{"a": 1}', "", [A]),
    ("mistral_args", '[TOOL_CALLS]rm[ARGS]{"a": 1}', '[TOOL_CALLS]rm[ARGS]{"a": 1}', []),
    ("mistral_args", "[TOOL_CALLS]add[ARGS]soon", "[TOOL_CALLS]add[ARGS]soon", []),
    ("mistral_args", "[TOOL_CALLS]add", "[TOOL_CALLS]add", []),
    ("qwen_coder", f"<tool_call>\n{CODER_WEATHER}\n</tool_call>", "", [W]),
    ("qwen_coder", f"Now.\n<tool_call>\n{CODER_ADD}\n</tool_call>\n<tool_call>\n{CODER_WEATHER}\n</tool_call>", "Now.\n", [A, W]),
    ("qwen_coder", "<tool_call>\n<function=add>\n</function>\n</tool_call>", "", [("add", "{}")]),
    ("qwen_coder", "<tool_call>\n<function=add>\n<parameter=a>\n1\n</function>\n</tool_call>", "", [A]),
    ("qwen_coder", "<tool_call>\n<function=rm>\n</function>\n</tool_call>", "<tool_call>\n<function=rm>\n</function>\n</tool_call>", []),
    ("list", f"[{WEATHER}, {ADD}]", "", [W, A]),
    ("list", f" [\n {ADD}\n]", "", [A]),
]  # fmt: skip


@pytest.mark.parametrize(("dialect", "answer", "text", "calls"), CASES)
def test_an_answer_is_read_whole_and_character_by_character(
    dialect: Dialect, answer: str, text: str, calls: list[tuple[str, str]]
) -> None:
    assert read(dialect, [answer]) == (text, calls)
    assert read(dialect, list(answer)) == (text, calls)


@given(st.data())
def test_the_cut_into_pieces_changes_nothing(data: st.DataObject) -> None:
    dialect, answer, _, _ = data.draw(st.sampled_from(CASES))
    answer = data.draw(st.sampled_from(["", "a {b} ", "\n"])) + answer + data.draw(st.sampled_from(["", " done", "\n"]))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(answer)), max_size=6)))
    pieces = [answer[a:b] for a, b in zip([0, *cuts], [*cuts, len(answer)], strict=True)]
    assert read(dialect, pieces) == read(dialect, [answer])


@given(
    st.sampled_from(["hermes", "llama", "mistral", "mistral_args", "qwen_coder"]),
    st.text(alphabet='<tool_cal>[TOOL_CALLS]{}":,nameargumts ', max_size=60),
)
def test_text_without_a_known_function_is_given_back_whole(dialect: Dialect, answer: str) -> None:
    text, calls = read(dialect, list(answer))
    assert calls == [] and (text == answer or not answer.strip(" \n;[],") or _only_marks(dialect, answer, text))


def _only_marks(dialect: Dialect, answer: str, text: str) -> bool:
    """A lone opening without anything behind it may vanish."""
    mark = NOTATIONS[dialect].opening
    return answer.replace(mark, "").strip(" ;[],") == text.replace(mark, "").strip(" ;[],")


@given(
    st.dictionaries(
        st.text(max_size=8),
        st.recursive(
            st.integers() | st.text(max_size=8) | st.none(),
            lambda x: st.lists(x, max_size=3) | st.dictionaries(st.text(max_size=4), x, max_size=3),
        ),
        max_size=4,
    ),
    st.booleans(),
)
def test_any_arguments_arrive_as_they_were_written(arguments: dict[str, Any], ascii_only: bool) -> None:
    written = json.dumps(arguments, ensure_ascii=ascii_only)
    call = f'{{"name": "add", "arguments": {written}}}'
    for dialect, answer in (("hermes", f"<tool_call>{call}</tool_call>"), ("llama", call), ("list", f"[{call}]")):
        assert read(dialect, list(answer)) == ("", [("add", written)])  # type: ignore[arg-type]


def test_a_named_call_is_the_whole_answer() -> None:
    assert read("named", [" ", '{"a"', ": 1}"], name="add") == ("", [A])
    assert read("named", [], name="add") == ("", [])


def test_only_one_call_where_the_client_wants_one() -> None:
    assert read("list", [f"[{WEATHER}, {ADD}]"], parallel=False)[1] == [W]


def test_the_template_tells_the_dialect() -> None:
    assert dialect_of("{{ messages }}") is None
    assert dialect_of("{% if tools %}<tool_call>{% endif %}") == "hermes"
    assert dialect_of("{% if tools %}[AVAILABLE_TOOLS][TOOL_CALLS]{% endif %}") == "mistral"
    assert dialect_of("{% if tools %}<|python_tag|>{% endif %}") == "llama"
    # as in the templates of Mistral-Small-3.2 and of Qwen3-Coder-30B-A3B
    newer = "{{- '[TOOL_CALLS]' + tool_call['function']['name'] + '[ARGS]' + arguments }}{% if tools %}{% endif %}"
    assert dialect_of(newer) == "mistral_args"
    coder = "{% if tools %}<tool_call>\\n<function=example_function_name>\\n<parameter=example_parameter_1>{% endif %}"
    assert dialect_of(coder) == "qwen_coder"
    assert dialect_of("{% if tools %}<tool_call>{% endif %}<function=") == "hermes"


def test_the_log_says_which_notation_is_read_and_why() -> None:
    assert why_dialect("{% if tools %}[TOOL_CALLS]{% endif %}") == (
        "tool calls are read as mistral, because the chat template has [TOOL_CALLS]"
    )
    assert why_dialect("{% if tools %}<tool_call>{% endif %}").endswith(
        "as hermes, because the chat template has <tool_call>"
    )
    assert "as hermes, because the chat template has tools but no mark of a known notation" in why_dialect(
        "{% if tools %}<|tool|>{% endif %}"
    )
    assert "a request with tools gets a generic prompt" in why_dialect("{{ messages }}")


@pytest.mark.parametrize(
    ("value", "kind", "read_as"),
    [("5", "integer", "5"), ("5", "string", '"5"'), ("True", "boolean", "true"), ("None", ["integer", "null"], "null"),
     ('{"a": [1]}', "object", '{"a": [1]}'), ("five", "integer", '"five"'), ("5", None, '"5"'), ("a\nb", "string", '"a\\nb"')],
)  # fmt: skip
def test_a_coders_values_have_the_types_of_the_schema(value: str, kind: Any, read_as: str) -> None:
    schemas = {"add": {"properties": {"a": {"type": kind} if kind else {}}}}
    parser = parser_of("qwen_coder", NAMES, schemas=schemas)
    events = parser.feed(
        f"<tool_call>\n<function=add>\n<parameter=a>\n{value}\n</parameter>\n</function>\n</tool_call>"
    )
    assert "".join(event.text for event in events if isinstance(event, ArgumentsDelta)) == f'{{"a": {read_as}}}'


@given(st.booleans(), st.lists(st.integers(0, 60), max_size=5))
def test_reasoning_is_separated_however_it_is_cut(inside: bool, cuts: list[int]) -> None:
    answer = ("" if inside else "\n<think>") + "\nI must < think </thin\n</think>\n\nThe answer <think> is 4."
    cuts = sorted(min(cut, len(answer)) for cut in cuts)
    splitter = ReasoningSplitter(inside=inside)
    parts = [splitter.feed(answer[a:b]) for a, b in zip([0, *cuts], [*cuts, len(answer)], strict=True)] + [
        splitter.finish()
    ]
    assert "".join(part.reasoning for part in parts) == "I must < think </thin\n"
    assert "".join(part.answer for part in parts) == "The answer <think> is 4."


@pytest.mark.parametrize("answer", ["Just words.", "  <thin", "", "<b>"])
def test_an_answer_without_reasoning_is_unchanged(answer: str) -> None:
    splitter = ReasoningSplitter(inside=False)
    parts = [splitter.feed(each) for each in answer] + [splitter.finish()]
    assert "".join(part.answer for part in parts) == answer
