"""A side for the harness's own tests: continues each prompt by counting from its last token.

A prompt that begins with 13 kills the process, 14 returns no tokens, and 15 raises while a second thread runs.
"""

import os
import threading

from tests.bench.throughput.worker import Generate, Setup, serve


def load(setup: Setup) -> tuple[Generate, dict[str, str]]:
    """Return the counting generator."""
    os.write(1, b"what a library says on standard output must not be taken for an answer\n")

    def generate(prompts: list[list[int]], max_tokens: list[int]) -> list[list[int]]:
        if prompts[0][0] == 13:
            os.write(2, b"Error: the 13th\n")
            os._exit(1)
        if prompts[0][0] == 15:
            threading.Thread(target=threading.Event().wait).start()
            raise ValueError("the 15th")
        if prompts[0][0] == 14:
            return [[] for _ in prompts]
        return [
            list(range(prompt[-1] + 1, prompt[-1] + 1 + most)) for prompt, most in zip(prompts, max_tokens, strict=True)
        ]

    return generate, {"dtype": setup.dtype}


if __name__ == "__main__":
    serve(load)
