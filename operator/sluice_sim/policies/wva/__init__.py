"""llm-d's Workload Variant Autoscaler (WVA): saturation v1, saturation v2 and the queueing model."""
