"""Reasoning as a field of its own, and the fields of a request that the chat template of a reasoning model reads."""

from cases import ANSWER, ASK_FOR_REASONING, REASON, REASON_URL, THOUGHT, case
from openai import OpenAI

client = OpenAI(base_url=f"{REASON_URL}/v1")
BRIEF = {
    "model": REASON,
    "messages": [{"role": "user", "content": "Name a colour."}],
    "temperature": 0,
    "max_tokens": 12,
}
OPENED = {"chat_template_kwargs": {"thinking": True}}  # the prompt ends with <think>
ASKED = BRIEF | {
    "messages": [{"role": "user", "content": ASK_FOR_REASONING}],
    "max_tokens": 60,
    "extra_body": OPENED,
}


def prompt_tokens(**fields: str) -> int:
    return client.chat.completions.create(**BRIEF | {"max_tokens": 1}, **fields).usage.prompt_tokens


@case("reasoning")
def reasoning() -> str:
    answer = client.chat.completions.create(**ASKED)
    message = answer.choices[0].message
    assert (message.reasoning_content.strip(), message.content) == (THOUGHT, ANSWER)
    assert 0 < answer.usage.completion_tokens_details.reasoning_tokens < answer.usage.completion_tokens
    response = client.responses.create(
        model=REASON, input=ASK_FOR_REASONING, temperature=0, max_output_tokens=60, extra_body=OPENED
    )
    thought, text = response.output
    assert (thought.type, text.type) == ("reasoning", "message")
    assert (thought.content[0].text.strip(), response.output_text) == (THOUGHT, ANSWER)
    return repr(message.reasoning_content)


@case("reasoning: stream")
def streamed() -> str:
    deltas = [event.choices[0].delta for event in client.chat.completions.create(**ASKED, stream=True) if event.choices]
    thoughts = [delta.reasoning_content for delta in deltas if getattr(delta, "reasoning_content", None)]
    assert len(thoughts) > 1, "the reasoning came at once"
    assert "".join(thoughts).strip() == THOUGHT
    assert "".join(delta.content or "" for delta in deltas) == ANSWER
    return f"{len(thoughts)} deltas"


@case("reasoning_effort, verbosity")
def effort() -> str:
    plain = prompt_tokens()
    assert plain == prompt_tokens(reasoning_effort="low") == prompt_tokens(verbosity="high")
    longer = [prompt_tokens(reasoning_effort="high"), prompt_tokens(verbosity="low")]
    assert all(count > plain for count in longer), "the template adds a sentence for each of these"
    return f"{plain} tokens, {longer[0]} with effort high, {longer[1]} with verbosity low"


@case("chat_template_kwargs")
def template_variables() -> str:
    plain = client.chat.completions.create(**BRIEF, extra_body={"chat_template_kwargs": {"thinking": False}})
    opened = client.chat.completions.create(**BRIEF, extra_body=OPENED)
    assert plain.choices[0].message.content
    assert getattr(plain.choices[0].message, "reasoning_content", None) is None
    assert opened.choices[0].message.reasoning_content
    assert opened.usage.prompt_tokens > plain.usage.prompt_tokens
    return opened.choices[0].message.reasoning_content
