"""`make bench-operator`: the operator at 1,000 LLMDeployments and 5,000 pods; a table and .out/bench-operator.json.

It needs KUBECONFIG of a cluster with kwok, the rights of an administrator, and root on this machine, where operator and
responder run: the addresses of the fake pods (POD_CIDR, kwok's --cidr) lead to the responder. SCALE is the number of
LLMDeployments. The exit code is 0 only if every bar is met.
"""

import sys
from pathlib import Path

from tests.bench.operator_scale import scale
from tests.bench.report import show
from tests.bench.report.show import Part

OUT = Path(".out")


if __name__ == "__main__":
    sys.exit(show.run([Part("operator", scale.report)], OUT, OUT / "bench-operator.json"))
