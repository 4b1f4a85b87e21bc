"""Grammars in the whole engine: speculation, preemption and requests beside them change no output."""

import json
from pathlib import Path

import jsonschema

from sluice_engine import LLM, SamplingParams
from sluice_engine.grammar import Grammar

ROWS = {
    "type": "array",
    "minItems": 8,
    "maxItems": 8,
    "items": {
        "type": "object",
        "properties": {"name": {"enum": ["alpha", "beta"]}, "value": {"type": "integer", "minimum": 0, "maximum": 9}},
        "required": ["name", "value"],
        "additionalProperties": False,
    },
}
GRAMMAR = Grammar("json_schema", json.dumps(ROWS))
PARAMS = [
    SamplingParams(temperature=0.0, max_tokens=400, grammar=GRAMMAR),
    SamplingParams(temperature=1.0, seed=3, max_tokens=400, grammar=GRAMMAR, logprobs=2),
    SamplingParams(temperature=0.7, seed=4, max_tokens=400, grammar=GRAMMAR, top_p=0.9, repetition_penalty=1.1),
    SamplingParams(temperature=0.0, max_tokens=60, ignore_eos=True),
]
PROMPTS = ["List alpha 1, beta 2, alpha 1, beta 2:", "What is the KV cache?", "one two three one two", "A replica is"]


def outputs(llm: LLM) -> list[str]:
    return [result.text for result in llm.generate(PROMPTS, PARAMS, progress=False)]


def test_neither_speculation_nor_preemption_nor_neighbours_change_an_output(tiny_model: Path) -> None:
    plain = LLM(tiny_model, threads=1, kv_size=4 << 20, speculation="off")
    alone = [
        plain.generate([prompt], params, progress=False)[0].text for prompt, params in zip(PROMPTS, PARAMS, strict=True)
    ]
    for text in alone[:3]:
        jsonschema.validate(json.loads(text), ROWS)
    assert outputs(plain) == alone
    drafting = LLM(tiny_model, threads=1, kv_size=4 << 20, speculation="on")
    assert outputs(drafting) == alone
    assert drafting._engine.scheduler.speculation.accepted > 20
    narrow = LLM(tiny_model, threads=1, kv_size=1 << 20, max_model_length=512, speculation="off")
    assert outputs(narrow) == alone
    assert narrow._engine.scheduler.preemptions > 0


def test_a_grammar_that_fails_in_the_engine_ends_only_its_own_request(tiny_model: Path) -> None:
    llm = LLM(tiny_model, threads=1, kv_size=4 << 20)
    bad = SamplingParams(temperature=0.0, max_tokens=8, grammar=Grammar("regex", "("))
    results = llm.generate(["a", "b"], [bad, SamplingParams(temperature=0.0, max_tokens=8)], progress=False)
    assert results[0].finish_reason == "error" and "grammar" in str(results[0])
    assert results[1].finish_reason in ("stop", "length")
