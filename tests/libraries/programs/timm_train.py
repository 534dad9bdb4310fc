"""timm: ResNet, EfficientNet, ViT and ConvNeXt made by name; one trained with timm's tools."""

import timm
import torch
from timm.loss import LabelSmoothingCrossEntropy
from timm.optim import create_optimizer_v2
from timm.scheduler import CosineLRScheduler
from timm.utils import ModelEmaV2

for name, more in {
    "resnet18": {}, "efficientnet_b0": {}, "vit_tiny_patch16_224": {"img_size": 32},
    "convnext_atto": {}, "mobilenetv3_small_050": {},
}.items():  # fmt: skip
    torch.manual_seed(0)
    model = timm.create_model(name, pretrained=False, num_classes=4, **more).eval()
    with torch.no_grad():
        x = torch.randn(1, 3, 32, 32)
        print(name, sum(p.numel() for p in model.parameters()), *model(x)[0].tolist())
torch.manual_seed(0)
model = timm.create_model("resnet10t", num_classes=4, drop_rate=0.1)
ema = ModelEmaV2(model, decay=0.9)
optimizer = create_optimizer_v2(model, "adamw", lr=1e-3, weight_decay=0.05)
schedule = CosineLRScheduler(optimizer, 4, warmup_t=1, warmup_lr_init=1e-4)
x, y = torch.randn(4, 3, 32, 32), torch.randint(4, (4,))
for epoch in range(3):
    loss = LabelSmoothingCrossEntropy()(model(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    schedule.step(epoch + 1)
    ema.update(model)
    print("loss", loss.item(), optimizer.param_groups[0]["lr"])
