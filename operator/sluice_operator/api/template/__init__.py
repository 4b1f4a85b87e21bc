"""Defines `spec.engine.template`: an overlay on the engine pod that adds to it and lowers none of its restrictions.

Fields have the names and meanings of a pod's; what belongs to the container there (env, volumeMounts) stands beside
the rest, because an engine pod has one container.
"""

from sluice_operator.api.template.env import EnvVar
from sluice_operator.api.template.overlay import LABEL_PART_OF, Template
from sluice_operator.api.template.placement import Toleration

__all__ = ["LABEL_PART_OF", "EnvVar", "Template", "Toleration"]
