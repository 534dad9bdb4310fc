"""torchviz: the graph of a loss as a picture's source."""

import torch
from torch import nn
from torchviz import make_dot

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
loss = net(torch.ones(2, 4)).mean()
dot = make_dot(loss, dict(net.named_parameters()), show_attrs=False)
edges = [line for line in dot.body if "->" in line]
labels = sorted(
    line.split("[")[1].split()[0] for line in dot.body if "->" not in line and "[" in line
)
print("edges", len(edges), *labels)
