"""Checks a model before there are pods: its config and the headers of its weights are read, never the weights.

A failed read never blocks a deployment: the result is then that the model was not checked, and why.
"""

from sluice_operator.model_check.checks import ModelChecks
from sluice_operator.model_check.hub import HubReader
from sluice_operator.model_check.record import ModelReader, ModelRecord, NotChecked, record_of
from sluice_operator.model_check.verdict import Verdict, judge

__all__ = ["HubReader", "ModelChecks", "ModelReader", "ModelRecord", "NotChecked", "Verdict", "judge", "record_of"]
