"""lightning: Trainer fits, validates and predicts with an optimizer and a schedule."""

import logging
import warnings

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.simplefilter("ignore")


class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 3))
        self.losses = []

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, i):
        loss = nn.functional.cross_entropy(self(batch[0]), batch[1])
        self.log("loss", loss)
        self.losses.append(loss.item())
        return loss

    def validation_step(self, batch, i):
        self.log("val", nn.functional.cross_entropy(self(batch[0]), batch[1]))

    def predict_step(self, batch, i):
        return self(batch[0])

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        return [optimizer], [torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 4)]


L.seed_everything(0, verbose=False)
data = TensorDataset(torch.randn(48, 6), torch.randint(3, (48,)))
net = Net()
trainer = L.Trainer(
    max_epochs=3, accelerator="cpu", logger=False, enable_checkpointing=False,
    enable_progress_bar=False, enable_model_summary=False, gradient_clip_val=0.5,
    accumulate_grad_batches=2,
)  # fmt: skip
trainer.fit(net, DataLoader(data, 8, shuffle=True), DataLoader(data, 16))
print("losses", *net.losses)
print("val", trainer.callback_metrics["val"].item())
print("predicted", *trainer.predict(net, DataLoader(data, 48))[0][0].tolist())
