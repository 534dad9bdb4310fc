"""vector-quantize-pytorch: VQ, residual VQ and FSQ in a trained autoencoder."""

import torch
from vector_quantize_pytorch import FSQ, ResidualVQ, VectorQuantize

torch.manual_seed(0)
x = torch.randn(2, 16, 8)
for kind in (
    lambda: VectorQuantize(dim=8, codebook_size=16, decay=0.8, commitment_weight=1.0),
    lambda: ResidualVQ(dim=8, num_quantizers=2, codebook_size=8),
):
    torch.manual_seed(1)
    vq = kind()
    encode = torch.nn.Linear(8, 8)
    optimizer = torch.optim.Adam(encode.parameters(), lr=1e-2)
    for _ in range(3):
        q, indices, commit = vq(encode(x))
        loss = (q - x).pow(2).mean() + commit.sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(type(vq).__name__, loss.item(), indices.sum().item())
q, indices = FSQ([8, 5, 5])(torch.randn(2, 4, 3))
print("fsq", q.sum().item(), *indices.flatten().tolist())
