"""What structured output costs: 32 streams of SmolLM2 with and without a schema, and the first use of a 10 kB schema.

`python -m tests.bench.structured_output` prints three lines. The two sides of a pair run in turn, in one process, over
the same prompts and the same number of tokens; which side is first alternates.
"""

import json
import statistics
import sys
import time
from typing import Any, Final

from sluice_engine import LLM, SamplingParams
from sluice_engine.grammar import Grammar
from sluice_engine.pulled import pull

STREAMS, TOKENS, PAIRS = 32, 64, 5
MOST_SHARE: Final = 0.05
MOST_FIRST_MS: Final = 100.0
ORDER: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "id": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{6}$"},
        "customer": {
            "type": "object",
            "properties": {
                "name": {"type": "string", "minLength": 1, "maxLength": 60},
                "email": {"type": "string", "format": "email"},
                "since": {"type": "string", "format": "date"},
                "tier": {"enum": ["basic", "silver", "gold"]},
            },
            "required": ["name", "email", "tier"],
            "additionalProperties": False,
        },
        "lines": {
            "type": "array",
            "minItems": 40,
            "maxItems": 80,
            "items": {
                "type": "object",
                "properties": {
                    "sku": {"type": "string", "maxLength": 24},
                    "quantity": {"type": "integer", "minimum": 1, "maximum": 999},
                    "price": {"type": "number", "minimum": 0},
                    "note": {"type": ["string", "null"], "maxLength": 80},
                },
                "required": ["sku", "quantity", "price"],
                "additionalProperties": False,
            },
        },
    },
    "required": ["id", "customer", "lines"],
    "additionalProperties": False,
}


def main() -> int:
    """Returns 0 if both bars are met."""
    llm = LLM(pull("smollm2"), kv_size=512 << 20, max_num_seqs=STREAMS, max_model_length=1024)
    grammar = Grammar("json_schema", json.dumps(ORDER))
    _tokens_per_second(llm, None, 8)
    _tokens_per_second(llm, grammar, 8)
    shares = []
    for pair in range(PAIRS):
        sides = [None, grammar] if pair % 2 else [grammar, None]
        rates = {side: _tokens_per_second(llm, side, TOKENS) for side in sides}
        shares.append(1 - rates[grammar] / rates[None])
        sys.stdout.write(f"without {rates[None]:.0f} and with {rates[grammar]:.0f} tokens/s\n")
    share = statistics.median(shares)
    sys.stdout.write(f"{STREAMS} streams of one schema cost {share:.1%} of the throughput ({PAIRS} pairs)\n")
    first = statistics.median(_first_use_ms(llm, number) for number in range(PAIRS))
    sys.stdout.write(f"the first use of a {len(_large(0).text) / 1000:.0f} kB schema adds {first:.0f} ms\n")
    return 0 if share <= MOST_SHARE and first <= MOST_FIRST_MS else 1


def _tokens_per_second(llm: LLM, grammar: Grammar | None, tokens: int) -> float:
    prompts = [f"Order {number} of customer {number * 7} as JSON, with all its lines:\n" for number in range(STREAMS)]
    params = SamplingParams(max_tokens=tokens, temperature=0.0, grammar=grammar, ignore_eos=grammar is None)
    begun = time.perf_counter()
    results = llm.generate(prompts, params, progress=False)
    return sum(len(result.token_ids) for result in results) / (time.perf_counter() - begun)


def _first_use_ms(llm: LLM, number: int) -> float:
    """One request with a schema that was never used, minus one with the same schema again."""
    params = SamplingParams(max_tokens=1, temperature=0.0, grammar=_large(number))
    seconds = []
    for _ in range(2):
        begun = time.perf_counter()
        llm.generate([f"Fields {number}, please, as JSON:"], params, progress=False)
        seconds.append(time.perf_counter() - begun)
    return 1000 * (seconds[0] - seconds[1])


def _large(number: int) -> Grammar:
    fields = {
        f"field_{number}_{place}": {
            "type": "object",
            "properties": {
                "kind": {"enum": [f"a{place}", f"b{place}", "c"]},
                "value": {"type": ["number", "null"]},
                "note": {"type": "string", "maxLength": 40},
            },
            "required": ["kind", "value"],
            "additionalProperties": False,
        }
        for place in range(46)
    }
    schema = {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}
    return Grammar("json_schema", json.dumps(schema))


if __name__ == "__main__":
    sys.exit(main())
