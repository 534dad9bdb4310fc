"""pytorch-ignite: a trainer, an evaluator, metrics, a schedule and early stopping."""

import torch
from ignite.engine import Events, create_supervised_evaluator, create_supervised_trainer
from ignite.handlers import EarlyStopping, create_lr_scheduler_with_warmup
from ignite.metrics import Accuracy, ConfusionMatrix, Loss, Precision, RunningAverage
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
data = TensorDataset(torch.randn(40, 6), torch.randint(3, (40,)))
loader = DataLoader(data, 8, shuffle=True)
model = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
trainer = create_supervised_trainer(model, optimizer, nn.CrossEntropyLoss())
RunningAverage(output_transform=lambda x: x).attach(trainer, "running")
metrics = {
    "accuracy": Accuracy(), "loss": Loss(nn.CrossEntropyLoss()),
    "precision": Precision(average=True), "confusion": ConfusionMatrix(3),
}  # fmt: skip
evaluator = create_supervised_evaluator(model, metrics)
plain = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
trainer.add_event_handler(
    Events.ITERATION_STARTED, create_lr_scheduler_with_warmup(plain, 0.0, 3, 0.1)
)
stop = EarlyStopping(2, lambda e: -e.state.metrics["loss"], trainer)
evaluator.add_event_handler(Events.COMPLETED, stop)


@trainer.on(Events.EPOCH_COMPLETED)
def evaluate(engine):
    evaluator.run(loader)
    found = evaluator.state.metrics
    print("running", engine.state.metrics["running"], "lr", optimizer.param_groups[0]["lr"])
    print(
        found["accuracy"], found["loss"], found["precision"], *found["confusion"].flatten().tolist()
    )


trainer.run(loader, max_epochs=4)
