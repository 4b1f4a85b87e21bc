"""Virtual token counters (Sheng et al., OSDI'24): the tenant that was served least is served first.

Within a tenant first come, first served. The counters are in `tenants.py`; among tenants that always have requests
waiting, the service of two of them differs by at most 2·max(w_p·L_input, w_q·M) (their theorem 4.4), L_input the longest
prompt and M the tokens that the pool holds, whatever the load of the others.
"""

import math

from sluice_engine.request import Request
from sluice_engine.scheduler.policies.base import Policy, PrefillEstimate


def _number(request: Request, _: PrefillEstimate) -> float:
    return float(request.order)


def _overtake_window(_: Request, __: PrefillEstimate) -> float:
    return math.inf  # by requests of other tenants until they were served as much; bounded in tokens, not seconds


FAIR = Policy("fair", _number, _overtake_window, by_tenant=True)
