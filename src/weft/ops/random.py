"""Random numbers that follow PyTorch's stream."""
