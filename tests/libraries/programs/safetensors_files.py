"""safetensors: tensors of many dtypes saved, opened lazily and loaded into a model."""

import tempfile

import torch
from safetensors import safe_open
from safetensors.torch import load, load_file, load_model, save, save_file, save_model

torch.manual_seed(0)
kinds = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8]
state = {str(k): torch.arange(6).reshape(2, 3).to(k) for k in kinds}
state["bool"] = torch.tensor([True, False])
with tempfile.TemporaryDirectory() as folder:
    path = f"{folder}/x.safetensors"
    save_file(state, path, metadata={"made": "here"})
    again = load_file(path)
    print(
        "same",
        *(int(torch.equal(again[k], v) and again[k].dtype == v.dtype) for k, v in state.items()),
    )
    with safe_open(path, "pt") as file:
        print(file.metadata()["made"], *sorted(file.keys()))
        print("slice", *file.get_slice("torch.float32")[:, 1:].flatten().tolist())
    a, b = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)
    save_model(a, path)
    print("loaded", load_model(b, path), *b(torch.ones(3)).tolist())
print("bytes", len(save(state)), *load(save(state))["torch.bfloat16"].flatten().tolist())
