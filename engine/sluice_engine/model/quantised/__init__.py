"""Checkpoints in GPTQ or AWQ format: read, unpacked to integers and dequantised."""
