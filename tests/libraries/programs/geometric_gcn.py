"""torch-geometric: GCN, GAT, SAGE and GIN layers on a graph, trained; batches and pooling."""

import torch
import torch.nn.functional as F
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GATConv, GCNConv, GINConv, SAGEConv, global_mean_pool
from torch_geometric.utils import add_self_loops, degree, to_undirected

torch.manual_seed(0)
edges = to_undirected(torch.randint(12, (2, 30)))
x, y = torch.randn(12, 6), torch.randint(3, (12,))
layers = {
    "gcn": lambda a, b: GCNConv(a, b), "gat": lambda a, b: GATConv(a, b, heads=1),
    "sage": lambda a, b: SAGEConv(a, b),
    "gin": lambda a, b: GINConv(torch.nn.Linear(a, b), train_eps=True),
}  # fmt: skip
for name, layer in layers.items():
    torch.manual_seed(1)
    first, second = layer(6, 8), layer(8, 3)
    parameters = [*first.parameters(), *second.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=0.02)
    for _ in range(4):
        loss = F.cross_entropy(second(F.relu(first(x, edges)), edges), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(name, loss.item())
graphs = [Data(x=torch.randn(n, 4), edge_index=torch.randint(n, (2, 6))) for n in (3, 5)]
batch = Batch.from_data_list(graphs)
print("pool", *global_mean_pool(batch.x, batch.batch).flatten().tolist())
print("degree", *degree(add_self_loops(edges)[0][0]).tolist())
