"""transformers: GPT-2 trained and used to generate by greedy search, beams and sampling."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel, set_seed

set_seed(0)
config = GPT2Config(
    vocab_size=60, n_positions=48, n_embd=32, n_layer=2, n_head=4, bos_token_id=1, eos_token_id=2,
    pad_token_id=0,
)  # fmt: skip
model = GPT2LMHeadModel(config).train()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
ids = torch.arange(3, 35).repeat(4, 1) + torch.arange(4)[:, None]
for _ in range(12):
    loss = model(ids, labels=ids).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    print("loss", loss.item())
model.eval()
start = ids[:2, :4]
mask = torch.ones_like(start)
common = {"attention_mask": mask, "max_new_tokens": 10, "do_sample": False}
print("greedy", *model.generate(start, **common).flatten().tolist())
print("beams", *model.generate(start, num_beams=3, **common).flatten().tolist())
set_seed(1)
common["do_sample"] = True
print("sampled", *model.generate(start, top_k=10, top_p=0.9, **common).flatten().tolist())
