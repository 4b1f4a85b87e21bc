"""Fields that vLLM adds to the API, and those of OpenAI's that only describe a request. Each case asserts the effect."""

import uuid

import openai
from cases import CHAT, CHAT_URL, case
from openai import OpenAI

client = OpenAI()
BRIEF = {
    "model": CHAT,
    "messages": [{"role": "user", "content": "Name a colour."}],
    "temperature": 0,
    "max_tokens": 12,
}
TEXT = "The capital of France is Paris, and that of Italy is"
KEPT = 20  # tokens of a prompt that is cut


def answer(**extra: object) -> str:
    """The text of a chat with these fields beside the SDK's own."""
    return client.chat.completions.create(**BRIEF, extra_body=extra).choices[0].message.content


def token_ids(text: str) -> list[int]:
    with OpenAI(base_url=CHAT_URL) as tokenizer:
        return tokenizer.post("/tokenize", cast_to=object, body={"model": CHAT, "prompt": text})["tokens"]


@case("continuous_usage_stats")
def continuous_usage() -> str:
    options = {"include_usage": True, "continuous_usage_stats": True}
    counts = [
        event.usage.completion_tokens
        for event in client.chat.completions.create(**BRIEF, stream=True, stream_options=options)
    ]
    assert counts == sorted(counts)
    assert len(set(counts)) > 2
    return str(counts)


@case("prompt logprobs")
def prompt_logprobs() -> str:
    asked = {"model": CHAT, "prompt": TEXT, "temperature": 0}
    scored = client.completions.create(**asked, max_tokens=1, extra_body={"prompt_logprobs": 1}).choices[0]
    first, *others = scored.prompt_logprobs
    own = [entry[str(token)] for entry, token in zip(others, token_ids(TEXT)[1:], strict=True)]
    assert first is None
    assert TEXT.endswith("".join(entry["decoded_token"] for entry in own))
    echoed = client.completions.create(**asked, max_tokens=0, echo=True, logprobs=1).choices[0]
    assert echoed.text == "".join(echoed.logprobs.tokens) == TEXT
    nothing, *values = echoed.logprobs.token_logprobs
    assert nothing is None
    assert all(abs(value - entry["logprob"]) < 0.05 for value, entry in zip(values, own, strict=True))
    events = list(client.completions.create(**asked, max_tokens=3, echo=True, logprobs=1, stream=True))
    text = "".join(event.choices[0].text for event in events)
    tokens = [token for event in events if event.choices[0].logprobs for token in event.choices[0].logprobs.tokens]
    assert text.startswith(TEXT)
    assert "".join(tokens) == text
    return f"{sum(values):.1f} for {len(values)} tokens"


@case("stop_token_ids")
def stop_token_ids() -> str:
    whole = answer()
    ids = token_ids(whole)
    cut = client.chat.completions.create(**BRIEF, extra_body={"stop_token_ids": [ids[3]]})
    assert cut.choices[0].finish_reason == "stop"
    assert cut.usage.completion_tokens == ids.index(ids[3])
    assert whole.startswith(cut.choices[0].message.content)
    return f"{cut.choices[0].message.content!r} of {whole!r}"


@case("include_stop_str_in_output")
def include_stop() -> str:
    whole = answer()
    word = whole.split()[2]
    shown = answer(stop=[word], include_stop_str_in_output=True)
    assert shown == whole[: whole.index(word) + len(word)]
    return shown


@case("skip_special_tokens")
def special_tokens() -> str:
    endless = {"ignore_eos": True, "max_tokens": 60}
    assert "<|im_end|>" not in answer(**endless)
    assert "<|im_end|>" in answer(**endless, skip_special_tokens=False)
    return "<|im_end|>"


@case("bad_words")
def bad_words() -> str:
    whole = answer()
    word = max(whole.split(), key=len).strip(".,!\"'")
    barred = answer(bad_words=[word])
    assert barred
    assert word in whole
    assert word not in barred
    return f"{barred!r} without {word!r}"


@case("truncate_prompt_tokens")
def truncate() -> str:
    ids = token_ids(TEXT * 4)
    asked = {"model": CHAT, "temperature": 0, "max_tokens": 5}
    cut = client.completions.create(**asked, prompt=TEXT * 4, extra_body={"truncate_prompt_tokens": KEPT})
    assert cut.usage.prompt_tokens == KEPT
    assert cut.choices[0].text == client.completions.create(**asked, prompt=ids[-KEPT:]).choices[0].text
    long = [{"role": "user", "content": "long " * 20_000}]
    chat = client.chat.completions.create(**BRIEF | {"messages": long}, extra_body={"truncate_prompt_tokens": KEPT})
    assert chat.usage.prompt_tokens == KEPT
    return f"{KEPT} of {len(ids)} tokens"


@case("cache_salt")
def cache_salt() -> str:
    prompt = f"{uuid.uuid4()} " + "A salt keeps the cached blocks of one client from those that do not know it. " * 6

    def cached(salt: str | None) -> int:
        given = client.completions.create(
            model=CHAT, prompt=prompt, max_tokens=1, extra_body={"cache_salt": salt} if salt else {}
        )
        return given.usage.prompt_tokens_details.cached_tokens

    counts = [cached(salt) for salt in ("a", "b", None, "a", None)]
    assert [count > 0 for count in counts] == [False, False, False, True, True]
    return f"{counts} cached tokens"


@case("store, metadata")
def store() -> str:
    whole, metadata = answer(), {"team": "search"}
    for stored in (True, False):
        given = client.chat.completions.create(**BRIEF, store=stored, metadata=metadata)
        assert given.choices[0].message.content == whole
        response = client.responses.create(model=CHAT, input="Hi", max_output_tokens=4, store=stored, metadata=metadata)
        assert response.metadata == metadata
        for retrieve, name in ((client.chat.completions.retrieve, given.id), (client.responses.retrieve, response.id)):
            try:
                retrieve(name)
            except openai.NotFoundError:
                continue
            raise AssertionError("a server without storage stored an answer")
    return "accepted, and nothing is stored"
