"""transformers: T5, an encoder and a decoder, trained and generating."""

import torch
from transformers import T5Config, T5ForConditionalGeneration, set_seed

set_seed(0)
config = T5Config(
    vocab_size=64, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4,
    decoder_start_token_id=0, pad_token_id=0, eos_token_id=1,
)  # fmt: skip
model = T5ForConditionalGeneration(config).train()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
ids, labels = torch.randint(2, 64, (4, 10)), torch.randint(2, 64, (4, 7))
for _ in range(5):
    loss = model(input_ids=ids, labels=labels).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print("loss", loss.item())
model.eval()
print("greedy", *model.generate(ids[:2], max_new_tokens=8).flatten().tolist())
print("beams", *model.generate(ids[:2], num_beams=2, max_new_tokens=6).flatten().tolist())
