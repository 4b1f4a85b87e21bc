"""transformers' own continuous batching, with the settings that are fastest on this load.

Its manager stays up between rounds, so its set-up is not timed, and each request ends at its own length.
"""

from importlib.metadata import version

from tests.bench.throughput.worker import Generate, Setup, serve

NUM_BLOCKS = 512
MAX_BATCH_TOKENS = 2048
WAIT_SECONDS = 300.0  # for one result


def load(setup: Setup) -> tuple[Generate, dict[str, str]]:
    """The manager behind `generate_batch`, because the latter accepts only one length for all requests."""
    import torch
    from transformers import AutoModelForCausalLM, ContinuousBatchingConfig, GenerationConfig

    torch.set_num_threads(setup.threads)
    model = AutoModelForCausalLM.from_pretrained(
        setup.model, dtype=getattr(torch, setup.dtype), attn_implementation="sdpa", local_files_only=True
    ).eval()
    manager = model.init_continuous_batching(
        generation_config=GenerationConfig(do_sample=False, eos_token_id=-1, pad_token_id=0),
        continuous_batching_config=ContinuousBatchingConfig(
            num_blocks=NUM_BLOCKS, max_batch_tokens=MAX_BATCH_TOKENS, max_requests_per_batch=setup.concurrency
        ),
    )
    manager.start()

    def generate(prompts: list[list[int]], max_tokens: list[int]) -> list[list[int]]:
        names = [
            manager.add_request(prompt, max_new_tokens=most) for prompt, most in zip(prompts, max_tokens, strict=True)
        ]
        answers: dict[str, list[int]] = {}
        while len(answers) < len(names):
            result = manager.get_result(timeout=WAIT_SECONDS)
            if result is None:
                raise RuntimeError(f"no answer for {WAIT_SECONDS:g} s, {len(answers)} of {len(names)} were there")
            if result.error is not None:
                raise RuntimeError(f"{result.request_id}: {result.error}")
            if result.is_finished():
                answers[result.request_id] = list(result.generated_tokens)
        return [answers[name] for name in names]

    return generate, {"transformers": version("transformers"), "torch": version("torch")}


if __name__ == "__main__":
    serve(load)
