"""Structured output: a request's grammar, from its text to the tokens that it allows next. Imports no torch.

`Grammar` is plain data: the HTTP layer parses a request into it, the socket carries it, and the sampler takes it from
`SamplingParams.grammar`. `checker` compiles it on trial in a process of its own before it is accepted. In the engine,
`GrammarCompiler` makes matchers, and `sampling/grammar_masks.py` asks them for the allowed tokens beside the step.
"""

from sluice_engine.grammar.grammar import WHITESPACE, Grammar, GrammarInvalid, check_bounds, check_schema, literals

__all__ = ["WHITESPACE", "Grammar", "GrammarInvalid", "check_bounds", "check_schema", "literals"]
