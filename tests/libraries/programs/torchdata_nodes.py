"""torchdata: nodes that read, map, batch and mix, stopped in the middle and gone on with."""

import torch
from torchdata.nodes import Batcher, IterableWrapper, Loader, Mapper, SamplerWrapper
from torchdata.stateful_dataloader import StatefulDataLoader
from torch.utils.data import RandomSampler, TensorDataset

torch.manual_seed(0)
rows = torch.arange(20.0)
node = Batcher(Mapper(IterableWrapper(range(20)), lambda i: rows[i] * 2), batch_size=3)
for batch in Loader(node):
    print("batch", *torch.stack(batch).tolist())
sampled = SamplerWrapper(RandomSampler(range(6), generator=torch.Generator().manual_seed(1)))
print("sampled", *Loader(sampled))
loader = StatefulDataLoader(TensorDataset(rows), batch_size=4)
batches = iter(loader)
print("first", *next(batches)[0].tolist())
state = loader.state_dict()
again = StatefulDataLoader(TensorDataset(rows), batch_size=4)
again.load_state_dict(state)
print("on", *(x.sum().item() for (x,) in again))
