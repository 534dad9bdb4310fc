"""transformers: Llama with grouped heads, trained, and generating with a cache."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM, set_seed

set_seed(0)
config = LlamaConfig(
    vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
    bos_token_id=1, eos_token_id=2, pad_token_id=0,
)  # fmt: skip
model = LlamaForCausalLM(config)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
ids = torch.randint(3, 64, (4, 16))
for _ in range(6):
    loss = model(ids, labels=ids).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print("loss", loss.item())
model.eval()
start = ids[:2, :5]
out = model.generate(start, attention_mask=torch.ones_like(start), max_new_tokens=12)
print("greedy", *out.flatten().tolist())
bf16 = model.to(torch.bfloat16)
print("bf16", round(bf16(ids).logits.float().abs().mean().item(), 2))
