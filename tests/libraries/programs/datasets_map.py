"""datasets: rows formatted as tensors, mapped and loaded in batches."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"
import torch
from datasets import Dataset, disable_progress_bars
from torch.utils.data import DataLoader

disable_progress_bars()
torch.manual_seed(0)
rows = Dataset.from_dict({"x": [[i / 7, 1.0] for i in range(12)], "y": list(range(12))})
rows = rows.map(lambda r: {"z": r["x"][0] * 2}).with_format("torch")
print("row", *rows[3]["x"].tolist(), rows[3]["y"].item(), str(rows["z"][:].dtype))
for batch in DataLoader(rows, 5, shuffle=True):
    print("batch", *batch["x"].flatten().tolist(), *batch["y"].tolist(), batch["z"].sum().item())
