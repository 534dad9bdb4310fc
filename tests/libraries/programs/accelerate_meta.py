"""accelerate: a model made without memory, then loaded with weights."""

import tempfile

import torch
from accelerate import init_empty_weights, load_checkpoint_and_dispatch
from safetensors.torch import save_file
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.LayerNorm(8), nn.Linear(8, 2))

    def forward(self, x):
        return self.body(x)


torch.manual_seed(0)
full = Net()
with init_empty_weights():
    empty = Net()
print("devices", *sorted({p.device.type for p in empty.parameters()}))
with tempfile.NamedTemporaryFile(suffix=".safetensors") as file:
    save_file(full.state_dict(), file.name)
    loaded = load_checkpoint_and_dispatch(empty, file.name, device_map={"": "cpu"})
print("out", *loaded(torch.ones(1, 4))[0].tolist())
