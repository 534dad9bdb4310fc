"""accelerate: a training loop with gradient accumulation, clipping and gathered metrics."""

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

set_seed(0)
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
model = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
loader = DataLoader(TensorDataset(torch.randn(32, 5), torch.randn(32, 1)), 4, shuffle=True)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
for x, y in loader:
    with accelerator.accumulate(model):
        loss = nn.functional.mse_loss(model(x), y)
        accelerator.backward(loss)
        if accelerator.sync_gradients:
            print("norm", accelerator.clip_grad_norm_(model.parameters(), 0.5).item())
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    print("loss", accelerator.gather(loss.detach()).item(), schedule.get_last_lr()[0])
print("weight", *accelerator.unwrap_model(model)[0].weight[0].tolist())
