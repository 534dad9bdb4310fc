"""einops: rearrange, reduce, repeat, einsum, pack and the layers, in a trained model."""

import torch
from einops import einsum, pack, reduce, repeat, unpack
from einops.layers.torch import EinMix, Rearrange, Reduce
from torch import nn

torch.manual_seed(0)
x = torch.randn(2, 3, 8, 8)
print("max", *reduce(x, "b c (h p) (w q) -> b c", "max", p=2, q=2).flatten().tolist())
print("repeat", repeat(x, "b c h w -> b (r c) h w", r=2).sum().item())
print("einsum", einsum(x, x, "b c h w, b d h w -> b c d")[0, 0].tolist()[0])
packed, shapes = pack([x.flatten(1), torch.ones(2, 5)], "b *")
print("packed", *packed.shape, *(t.shape[1] for t in unpack(packed, shapes, "b *")))
net = nn.Sequential(
    Rearrange("b c (h p) (w q) -> b (h w) (c p q)", p=4, q=4),
    EinMix("b t c -> b t d", weight_shape="c d", bias_shape="d", c=48, d=16),
    nn.ReLU(),
    Reduce("b t d -> b d", "mean"),
    nn.Linear(16, 3),
)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
for _ in range(4):
    loss = nn.functional.cross_entropy(net(x), torch.tensor([0, 2]))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print("loss", loss.item())
