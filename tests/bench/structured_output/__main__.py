"""What structured output costs: the first use of a large schema, and 32 streams of SmolLM2 with and without a schema.

`python -m tests.bench.structured_output` prints what `first_use` prints, then a line per pair and the median. The two
sides of a pair run in turn, in one process, over the same prompts and the same number of tokens; which side is first
alternates.
"""

import json
import os
import statistics
import sys
import time
from typing import Any, Final

from sluice_engine import LLM, SamplingParams
from sluice_engine.grammar import Grammar
from sluice_engine.pulled import pull
from tests.bench.structured_output import first_use

STREAMS, TOKENS, PAIRS = 32, 64, 5
MOST_SHARE: Final = 0.05
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
    added = first_use.run(os.cpu_count() or 1, first_use.REPETITIONS, None)
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
    return 0 if share <= MOST_SHARE and added <= first_use.MOST_MS else 1


def _tokens_per_second(llm: LLM, grammar: Grammar | None, tokens: int) -> float:
    prompts = [f"Order {number} of customer {number * 7} as JSON, with all its lines:\n" for number in range(STREAMS)]
    params = SamplingParams(max_tokens=tokens, temperature=0.0, grammar=grammar, ignore_eos=grammar is None)
    begun = time.perf_counter()
    results = llm.generate(prompts, params, progress=False)
    return sum(len(result.token_ids) for result in results) / (time.perf_counter() - begun)


if __name__ == "__main__":
    sys.exit(main())
