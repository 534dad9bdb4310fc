"""pytorch-metric-learning: triplets mined and trained on, and other losses on the same vectors."""

import torch
from pytorch_metric_learning import distances, losses, miners, reducers
from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator  # noqa: F401

torch.manual_seed(0)
x, labels = torch.randn(24, 6), torch.arange(24) % 4
net = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
distance = distances.CosineSimilarity()
loss_of = losses.TripletMarginLoss(
    margin=0.2, distance=distance, reducer=reducers.ThresholdReducer(low=0)
)
miner = miners.TripletMarginMiner(margin=0.2, distance=distance, type_of_triplets="semihard")
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
for _ in range(4):
    vectors = net(x)
    triplets = miner(vectors, labels)
    loss = loss_of(vectors, labels, triplets)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print("triplet", loss.item(), miner.num_triplets)
vectors = net(x).detach().requires_grad_()
for kind in (
    losses.NTXentLoss(),
    losses.ContrastiveLoss(),
    losses.SupConLoss(),
    losses.MultiSimilarityLoss(),
    losses.CircleLoss(),
):
    loss = kind(vectors, labels)
    (grad,) = torch.autograd.grad(loss, vectors)
    print(type(kind).__name__, loss.item(), grad.abs().sum().item())
