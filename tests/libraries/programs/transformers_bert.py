"""transformers: BERT for classification from a small configuration, trained."""

import torch
from transformers import BertConfig, BertForSequenceClassification, set_seed

set_seed(0)
config = BertConfig(
    vocab_size=100, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
    intermediate_size=64, max_position_embeddings=32, num_labels=3,
)  # fmt: skip
model = BertForSequenceClassification(config).train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
ids, labels = torch.randint(100, (8, 12)), torch.randint(3, (8,))
mask = torch.ones_like(ids)
mask[:, 9:] = 0
for _ in range(5):
    out = model(ids, attention_mask=mask, labels=labels)
    out.loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print("loss", out.loss.item())
model.eval()
with torch.no_grad():
    print("logits", *model(ids, attention_mask=mask).logits[0].tolist())
