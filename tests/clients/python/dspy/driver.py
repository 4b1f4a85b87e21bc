"""dspy: Predict by its adapters, tools, streams and embeddings."""

from typing import Literal

import dspy
import litellm
from cases import CHAT, EMBED, EMBED_URL, case, run

BASE = {"temperature": 0.0, "max_tokens": 300, "cache": False, "num_retries": 0}
# As litellm's documentation says for a model that it does not list: without this, dspy asks for no schema.
litellm.register_model(
    {f"openai/{CHAT}": {"litellm_provider": "openai", "mode": "chat", "supports_response_schema": True}}
)
lm = dspy.LM(f"openai/{CHAT}", **BASE)
dspy.configure(lm=lm)


class Sort(dspy.Signature):
    """Say whether the text is about animals."""

    text: str = dspy.InputField()
    about: Literal["animals", "other"] = dspy.OutputField()


@case("text")
def text() -> str:
    return lm("Name a colour.")[0]


@case("responses")
def responses() -> str:
    return str(dspy.LM(f"openai/{CHAT}", model_type="responses", **BASE)("Name a colour.")[0])


@case("json_schema")
def json_schema() -> str:
    with dspy.context(adapter=dspy.JSONAdapter()):
        answer = dspy.Predict(Sort)(text="Cats purr.")
    assert answer.about in ("animals", "other")
    return answer.about


@case("stream")
async def stream() -> str:
    listener = dspy.streaming.StreamListener(signature_field_name="about")
    with dspy.context(adapter=dspy.JSONAdapter()):
        program = dspy.streamify(dspy.Predict(Sort), stream_listeners=[listener])
        found = [each async for each in program(text="Cats purr.")]
    assert isinstance(found[-1], dspy.Prediction)
    return f"{len(found)} parts"


@case("tools: required")
def required() -> str:
    def get_weather(city: str) -> str:
        """The current weather of a city."""
        return "18 degrees and rain"

    answer = lm(
        "Weather in Paris?",
        tools=[dspy.Tool(get_weather).format_as_litellm_function_call()],
        tool_choice="required",
    )[0]
    return str(answer["tool_calls"][0]["function"])


@case("n")
def several() -> str:
    found = lm("Name a colour.", n=2, temperature=1.0)
    assert len(found) == 2
    return "2"


@case("embeddings")
def embeddings() -> str:
    vectors = dspy.Embedder(f"openai/{EMBED}", api_base=f"{EMBED_URL}/v1", caching=False)(["a cat", "a kitten"])
    assert vectors.shape == (2, 384)
    return "384 numbers"


run()
