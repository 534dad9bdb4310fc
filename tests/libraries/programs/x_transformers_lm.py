"""x-transformers: a decoder with rotary positions and GLU, trained and generating."""

import torch
from x_transformers import AutoregressiveWrapper, Decoder, TransformerWrapper

torch.manual_seed(0)
net = TransformerWrapper(
    num_tokens=32, max_seq_len=24,
    attn_layers=Decoder(dim=32, depth=2, heads=4, rotary_pos_emb=True, ff_glu=True),
)  # fmt: skip
model = AutoregressiveWrapper(net)
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
ids = torch.arange(16).repeat(4, 1) + torch.arange(4)[:, None]
for _ in range(5):
    loss = model(ids)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print("loss", loss.item())
print("greedy", *model.generate(ids[:1, :4], 8, temperature=0.0).flatten().tolist())
