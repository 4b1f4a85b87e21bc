"""Runs in a pod: writes the expected outputs of the model on the volume, by greedy transformers `generate` in float32.

Usage: references.py MODEL_DIR OUT.json PROMPTS.jsonl

Each reference ends before the first token whose two best logits differ by less than `LEAST_GAP`: there, another order
of float additions may legitimately choose the other token.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any, Final

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from sluice_engine.tiny import corpus

LEAST_GAP: Final = 5e-4
SHORT: Final = 60  # number of questions with an output up to EOS or SHORT_TOKENS
SHORT_TOKENS: Final = 64
LONG: Final = 3  # number of questions with an output beyond EOS, for streams that outlive a scale-in
LONG_TOKENS: Final = 500
OPENING_TOKENS: Final = 12  # of a short output that loads of thousands of requests ask for


def main(folder: str, out: str, prompts: str) -> None:
    """Write a list of {question, max_tokens, ignore_eos, text, tokens, opening}, and the short ones for `sluice bench`.

    opening: max_tokens and text of the output's first tokens.
    """
    started = time.monotonic()
    torch.set_num_threads(1)  # the model is small: a second thread costs more than it gains
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    end = model.generation_config.eos_token_id
    questions = [pair.question for pair in corpus.load()]
    picked = [questions[index * len(questions) // SHORT] for index in range(SHORT)]
    short = [answer(model, tokenizer, question, SHORT_TOKENS) for question in picked]
    short = [reference for reference in short if reference["max_tokens"] == SHORT_TOKENS]
    model.generation_config.eos_token_id = None
    long = [answer(model, tokenizer, question, LONG_TOKENS) | {"ignore_eos": True} for question in picked[:LONG]]
    model.generation_config.eos_token_id = end
    long = [reference for reference in long if reference["tokens"] >= LONG_TOKENS // 2]
    Path(out).write_text(json.dumps(short + long))
    lines = [json.dumps({"prompt": reference["question"], "expect": reference["text"]}) for reference in short]
    Path(prompts).write_text("\n".join(lines) + "\n")
    whole = next(reference for reference in short if reference["tokens"] < SHORT_TOKENS)  # ended by EOS
    mean = sum(reference["tokens"] for reference in short) / len(short)
    took = time.monotonic() - started
    said = f"{len(short)} references of {mean:.0f} tokens, {len(long)} long ones, {took:.0f} s"
    print(json.dumps({"question": whole["question"], "answer": whole["text"], "said": said}))


@torch.inference_mode()
def answer(model: Any, tokenizer: Any, question: str, max_tokens: int) -> dict[str, Any]:
    """One reference, cut before the first ambiguous token."""
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": question}], add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    made = model.generate(
        **prompt, max_new_tokens=max_tokens, do_sample=False, return_dict_in_generate=True, output_logits=True
    )
    tokens = made.sequences[0, prompt["input_ids"].shape[1] :].tolist()
    best = torch.stack([step[0] for step in made.logits]).topk(2).values
    unsure = (best[:, 0] - best[:, 1] < LEAST_GAP).nonzero().flatten().tolist()
    sure = not unsure
    if unsure:
        tokens = tokens[: unsure[0]]
    text = tokenizer.decode(tokens, skip_special_tokens=True)
    while text.endswith("\ufffd"):  # an incomplete character; its rendering is not under test
        tokens, sure = tokens[:-1], False
        text = tokenizer.decode(tokens, skip_special_tokens=True)
    opening = tokens[:OPENING_TOKENS]
    return {
        "question": question,
        "max_tokens": max_tokens if sure else len(tokens),
        "ignore_eos": False,
        "text": text,
        "tokens": len(tokens),
        # the engine does not send a character that the length limit cuts
        "opening": {
            "max_tokens": len(opening),
            "text": tokenizer.decode(opening, skip_special_tokens=True).rstrip("\ufffd"),
        },
    }


if __name__ == "__main__":
    main(*sys.argv[1:])
