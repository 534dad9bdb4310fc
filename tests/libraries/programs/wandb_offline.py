"""wandb: an offline run that watches a model's gradients and logs a training."""

import os
import tempfile

import torch

os.environ["WANDB_MODE"] = "offline"
os.environ["WANDB_SILENT"] = "true"
import wandb

torch.manual_seed(0)
with tempfile.TemporaryDirectory() as folder:
    run = wandb.init(project="p", dir=folder, config={"lr": 0.1})
    model = torch.nn.Linear(3, 1)
    wandb.watch(model, log="all", log_freq=1)
    optimizer = torch.optim.SGD(model.parameters(), lr=run.config.lr)
    for _ in range(3):
        loss = model(torch.randn(4, 3)).pow(2).mean()
        loss.backward()
        wandb.log({"loss": loss, "weights": wandb.Histogram(model.weight.detach())})
        optimizer.step()
        optimizer.zero_grad()
        print("loss", loss.item(), run.summary["loss"])
    run.finish()
