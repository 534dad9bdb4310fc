"""torchdata: nodes that read, map, batch and sample; stopped in the middle and gone on with."""

import torch
from torch.utils.data import RandomSampler
from torchdata.nodes import Batcher, IterableWrapper, Loader, Mapper, SamplerWrapper

torch.manual_seed(0)
rows = torch.arange(20.0)


def pipe():
    return Loader(Batcher(Mapper(IterableWrapper(range(20)), rows.__getitem__), batch_size=3))


for batch in pipe():
    print("batch", *torch.stack(batch).tolist())
sampled = SamplerWrapper(RandomSampler(range(6), generator=torch.Generator().manual_seed(1)))
print("sampled", *Loader(sampled))
loader = pipe()
batches = iter(loader)
print("first", *next(batches))
again = pipe()
again.load_state_dict(loader.state_dict())
print("on", *(torch.stack(batch).sum().item() for batch in again))
