"""Sampling on the device: parameters, token counts, score offsets and masks as static tensors."""
