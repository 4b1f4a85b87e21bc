"""One Grafana dashboard per audience: who uses a model, who is on call, who plans capacity."""

from sluice.monitoring.dashboards.capacity import CAPACITY
from sluice.monitoring.dashboards.model_user import MODEL_USER
from sluice.monitoring.dashboards.on_call import ON_CALL

__all__ = ["CAPACITY", "DASHBOARDS", "MODEL_USER", "ON_CALL"]

DASHBOARDS = (MODEL_USER, ON_CALL, CAPACITY)
