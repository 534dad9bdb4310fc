"""opacus: differentially private training of a convolutional network."""

import warnings

import torch
from opacus import PrivacyEngine
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

warnings.simplefilter("ignore")
torch.manual_seed(0)
data = TensorDataset(torch.randn(32, 1, 8, 8), torch.randint(2, (32,)))
model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
engine = PrivacyEngine()
model, optimizer, loader = engine.make_private(
    module=model, optimizer=optimizer, data_loader=DataLoader(data, 8), noise_multiplier=1.0,
    max_grad_norm=1.0, poisson_sampling=False,
)  # fmt: skip
for x, y in loader:
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    print("loss", loss.item())
    optimizer.step()
    optimizer.zero_grad()
print("epsilon", engine.get_epsilon(1e-3))
