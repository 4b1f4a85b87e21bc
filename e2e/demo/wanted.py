"""The LLMDeployment of the demo, as a user would write it."""

from pathlib import Path
from typing import Final

NAME: Final = "chat"
TTFT_MS: Final = 2000
ITL_MS: Final = 100
KV_PERCENT: Final = 80
MOST_CONCURRENCY: Final = 32

# --pace emulates an accelerator: 30 ms to read the weights, 4 ms per sequence, 0.2 ms per prompt token, 2 µs per cached
# token. Replicas so have a realistic capacity of their own and need little CPU time of this machine.
YAML: Final = """\
apiVersion: sluice.dev/v1alpha1
kind: LLMDeployment
metadata:
  name: {name}
spec:
  model:
    uri: {uri}
  engine:
    accelerator: {{count: 0}}
    kvCache: {{size: 64Mi}}
    scheduling: {{maxNumSeqs: {most}, maxBatchedTokens: 512}}
    template:
      env:
        - {{name: SLUICE_THREADS, value: "1"}}
        - {{name: SLUICE_PACE, value: "base=0.03,sequence=0.004,prefill_token=0.0002,kv_token=2e-6"}}
  slo:
    ttftMilliseconds: {ttft}
    itlMilliseconds: {itl}
    attainmentPercent: "99"
  scaling:
    minReplicas: 1
    maxReplicas: 2
    targetKVOccupancyPercent: {kv}
    scaleDownStabilizationSeconds: 20
    burstMemorySeconds: 60
  admission:
    concurrency: {{min: 2, max: {most}}}
    maxQueueSeconds: 20
  rollout: {{drainSeconds: 30}}
"""


def text(model: Path) -> str:
    """The YAML for a model's folder."""
    return YAML.format(
        name=NAME, uri=model.resolve().as_uri(), ttft=TTFT_MS, itl=ITL_MS, kv=KV_PERCENT, most=MOST_CONCURRENCY
    )
