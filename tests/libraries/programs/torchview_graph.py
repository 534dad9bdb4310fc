"""torchview: the graph of a network's calls, as nodes and edges."""

import torch
from torch import nn
from torchview import draw_graph

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
for device in ("cpu", "meta"):
    graph = draw_graph(net, input_size=(1, 4), device=device, depth=2)
    print(
        device,
        len(graph.edge_list),
        graph.num_context_nodes if hasattr(graph, "num_context_nodes") else 0,
    )
    print(*(line.strip() for line in graph.visual_graph.body if "->" in line))
