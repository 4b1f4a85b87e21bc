"""transformers' `generate` on static batches: left-padded, each batch as long as its longest output."""

from importlib.metadata import version

from tests.bench.throughput.worker import Generate, Setup, serve

BATCH = 16
PAD = 0


def load(setup: Setup) -> tuple[Generate, dict[str, str]]:
    """Batches of 16 in the order of the requests; of each row only the requested tokens are kept."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(setup.threads)
    model = AutoModelForCausalLM.from_pretrained(
        setup.model, dtype=getattr(torch, setup.dtype), attn_implementation="sdpa", local_files_only=True
    ).eval()
    model.generation_config.eos_token_id = None  # ignores EOS without a logits processor

    def batch(prompts: list[list[int]], most: int) -> list[list[int]]:
        longest = max(map(len, prompts))
        padded = torch.tensor([[PAD] * (longest - len(prompt)) + prompt for prompt in prompts])
        mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts])
        with torch.inference_mode():
            answer = model.generate(padded, attention_mask=mask, max_new_tokens=most, do_sample=False, pad_token_id=PAD)
        rows: list[list[int]] = answer[:, longest:].tolist()
        return rows

    def generate(prompts: list[list[int]], max_tokens: list[int]) -> list[list[int]]:
        answers: list[list[int]] = []
        for first in range(0, len(prompts), BATCH):
            wanted = max_tokens[first : first + BATCH]
            rows = batch(prompts[first : first + BATCH], max(wanted))
            answers += [row[:most] for row, most in zip(rows, wanted, strict=True)]
        return answers

    return generate, {"transformers": version("transformers"), "torch": version("torch")}


if __name__ == "__main__":
    serve(load)
