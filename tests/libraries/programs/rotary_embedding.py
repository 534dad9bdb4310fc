"""rotary-embedding-torch: rotated queries and keys, xpos, and axial positions."""

import torch
from rotary_embedding_torch import RotaryEmbedding, apply_rotary_emb

torch.manual_seed(0)
q, k = torch.randn(1, 2, 10, 16, requires_grad=True), torch.randn(1, 2, 10, 16)
rotary = RotaryEmbedding(dim=8)
scores = rotary.rotate_queries_or_keys(q) @ rotary.rotate_queries_or_keys(k).transpose(-1, -2)
scores.softmax(-1).pow(2).sum().backward()
print("grad", q.grad.abs().sum().item(), *scores[0, 0, 3, :3].tolist())
xpos = RotaryEmbedding(dim=8, use_xpos=True)
a, b = xpos.rotate_queries_and_keys(q, k)
print("xpos", a.sum().item(), b.sum().item())
axial = RotaryEmbedding(dim=4, freqs_for="pixel", max_freq=32).get_axial_freqs(4, 5)
print("axial", apply_rotary_emb(axial, torch.ones(1, 4, 5, 16)).sum().item())
