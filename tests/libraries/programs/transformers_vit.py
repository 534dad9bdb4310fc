"""transformers: ViT for images, trained."""

import torch
from transformers import ViTConfig, ViTForImageClassification, set_seed

set_seed(0)
config = ViTConfig(
    hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
    image_size=32, patch_size=8, num_labels=5,
)  # fmt: skip
model = ViTForImageClassification(config).train()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
x, y = torch.randn(6, 3, 32, 32), torch.randint(5, (6,))
for _ in range(5):
    loss = model(pixel_values=x, labels=y).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print("loss", loss.item())
