"""vLLM's own load tool, as `vllm bench serve`. It runs in vLLM's environment, so it imports nothing else.

The command of that name is not installed there, because the wheel of the CPU build has another name.
"""

import argparse

from vllm.benchmarks.serve import add_cli_args, main

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    add_cli_args(parser)
    main(parser.parse_args())
