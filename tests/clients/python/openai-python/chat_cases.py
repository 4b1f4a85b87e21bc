"""Text, sampling, structured output, completions and embeddings."""

import json

from cases import CHAT, EMBED, EMBED_URL, PERSON, case
from openai import OpenAI
from pydantic import BaseModel, Field

HELLO = [{"role": "user", "content": "Name a colour."}]
client = OpenAI()
BRIEF = {"model": CHAT, "messages": HELLO, "temperature": 0, "max_tokens": 12}


class Person(BaseModel):
    """What the model fills in."""

    name: str = Field(max_length=20)
    age: int = Field(ge=0, le=120)


@case("text")
def text() -> str:
    answer = client.chat.completions.create(**BRIEF)
    assert answer.choices[0].message.content
    assert answer.choices[0].message.role == "assistant"
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    return answer.choices[0].message.content


@case("stream")
def stream() -> str:
    whole = client.chat.completions.create(**BRIEF).choices[0].message.content
    events = list(client.chat.completions.create(**BRIEF, stream=True, stream_options={"include_usage": True}))
    assert "".join(event.choices[0].delta.content or "" for event in events if event.choices) == whole
    assert events[-1].usage.completion_tokens <= 12
    assert [event.choices[0].finish_reason for event in events if event.choices][-1] in ("stop", "length")
    return f"{len(events)} events"


@case("n")
def several() -> str:
    answer = client.chat.completions.create(**BRIEF | {"temperature": 1.5}, n=3)
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert len({choice.message.content for choice in answer.choices}) > 1
    return "3 choices"


@case("seed")
def seed() -> str:
    texts = {
        client.chat.completions.create(**BRIEF | {"temperature": 1.5}, seed=7).choices[0].message.content for _ in "ab"
    }
    assert len(texts) == 1
    return texts.pop()


@case("logprobs")
def logprobs() -> str:
    choice = client.chat.completions.create(**BRIEF, logprobs=True, top_logprobs=3).choices[0]
    assert "".join(each.token for each in choice.logprobs.content) == choice.message.content
    assert all(len(each.top_logprobs) == 3 and each.logprob <= 0 for each in choice.logprobs.content)
    return f"{len(choice.logprobs.content)} tokens"


@case("stop")
def stop() -> str:
    whole = client.chat.completions.create(**BRIEF).choices[0].message.content
    word = whole.split()[2]
    choice = client.chat.completions.create(**BRIEF, stop=[word]).choices[0]
    assert choice.finish_reason == "stop"
    assert word not in choice.message.content
    assert whole.startswith(choice.message.content)
    return f"before {word!r}"


@case("json_object")
def json_object() -> str:
    asked = [{"role": "user", "content": 'Repeat this text:\n{"colour": "red"}'}]
    more = {"max_tokens": 200, "messages": asked}
    answer = client.chat.completions.create(**BRIEF | more, response_format={"type": "json_object"})
    assert isinstance(json.loads(answer.choices[0].message.content), dict)
    return answer.choices[0].message.content


@case("json_schema")
def json_schema() -> str:
    given = {"type": "json_schema", "json_schema": {"name": "person", "strict": True, "schema": PERSON}}
    answer = client.chat.completions.create(**BRIEF | {"max_tokens": 100}, response_format=given)
    assert set(json.loads(answer.choices[0].message.content)) == {"name", "age"}
    return answer.choices[0].message.content


@case("parse")
def parse() -> str:
    answer = client.chat.completions.parse(**BRIEF | {"max_tokens": 100}, response_format=Person)
    assert isinstance(answer.choices[0].message.parsed, Person)
    with client.chat.completions.stream(**BRIEF | {"max_tokens": 100}, response_format=Person) as events:
        parsed = events.get_final_completion().choices[0].message.parsed
    assert isinstance(parsed, Person)
    return repr(parsed)


@case("regex, choice")
def guided() -> str:
    pattern = client.chat.completions.create(**BRIEF, extra_body={"structured_outputs": {"regex": "[0-9]{4}"}})
    assert pattern.choices[0].message.content.isdigit()
    chosen = client.chat.completions.create(**BRIEF, extra_body={"guided_choice": ["red", "blue"]})
    assert chosen.choices[0].message.content in ("red", "blue")
    return chosen.choices[0].message.content


@case("EBNF")
def ebnf() -> str:
    grammar = 'root ::= ("light" | "dark") " " ("red" | "blue")'
    given = [
        client.chat.completions.create(**BRIEF, extra_body=fields).choices[0].message.content
        for fields in ({"guided_grammar": grammar}, {"structured_outputs": {"grammar": grammar}})
    ]
    assert given[0] == given[1]
    assert given[0] in ("light red", "light blue", "dark red", "dark blue")
    return given[0]


@case("completions")
def completions() -> str:
    prompts = ["One, two,", "The sea is"]
    answer = client.completions.create(model=CHAT, prompt=prompts, max_tokens=4, echo=True, temperature=0)
    assert [choice.index for choice in answer.choices] == [0, 1]
    assert all(choice.text.startswith(prompt) for choice, prompt in zip(answer.choices, prompts, strict=True))
    assert client.completions.create(model=CHAT, prompt="The").usage.completion_tokens <= 16
    return answer.choices[0].text


@case("embeddings")
def embeddings() -> str:
    with OpenAI(base_url=f"{EMBED_URL}/v1") as embedder:
        near, same, far = (
            each.embedding
            for each in embedder.embeddings.create(model=EMBED, input=["a cat", "a kitten", "the stock market"]).data
        )
    scores = [sum(a * b for a, b in zip(near, other, strict=True)) for other in (same, far)]
    assert len(near) == 384
    assert scores[0] > scores[1]
    return f"{scores[0]:.2f} > {scores[1]:.2f}"
