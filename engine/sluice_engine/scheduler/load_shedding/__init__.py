"""Which requests are rejected, evicted or demoted when not all can meet their TTFT deadline, and which would miss it at
other loads. No torch.
"""
