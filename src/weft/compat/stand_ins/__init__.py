"""Private names of PyTorch's that libraries use and that can do here what they do there."""
