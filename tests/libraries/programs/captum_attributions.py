"""captum: attributions of a convolutional network by seven methods."""

import torch
from captum import attr
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(
    nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 3)
).eval()
x = torch.randn(2, 1, 8, 8, requires_grad=True)
target = torch.tensor([0, 2])
methods = {
    "integrated": (attr.IntegratedGradients(model), {"n_steps": 20}),
    "saliency": (attr.Saliency(model), {}),
    "times": (attr.InputXGradient(model), {}),
    "deeplift": (attr.DeepLift(model), {}),
    "guided": (attr.GuidedBackprop(model), {}),
    "occlusion": (
        attr.Occlusion(model),
        {"sliding_window_shapes": (1, 3, 3), "strides": (1, 2, 2)},
    ),
    "ablation": (
        attr.FeatureAblation(model),
        {"feature_mask": torch.arange(64).reshape(8, 8) // 16},
    ),
}
for name, (method, more) in methods.items():
    torch.manual_seed(1)
    found = method.attribute(x, target=target, **more)
    print(name, found.abs().sum().item(), *found[0, 0, 2, :3].tolist())
layer = attr.LayerGradCam(model, model[0]).attribute(x, target=target)
print("gradcam", layer.sum().item())
