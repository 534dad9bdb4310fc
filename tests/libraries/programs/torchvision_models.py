"""torchvision: a ResNet trained on transformed images; boxes and losses."""

import torch
from torchvision import models, ops
from torchvision.transforms import v2

torch.manual_seed(0)
images, labels = torch.rand(8, 3, 72, 72), torch.randint(3, (8,))
prepare = v2.Compose(
    [
        v2.RandomHorizontalFlip(1.0),
        v2.CenterCrop(64),
        v2.ColorJitter(brightness=(0.8, 0.8)),
        v2.Normalize([0.5] * 3, [0.25] * 3),
    ]
)
net = models.resnet18(num_classes=3)
net.eval()
with torch.no_grad():
    print("logits", *net(prepare(images[:2])).flatten().tolist())
net.train()
optimizer = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9)
for _ in range(2):
    loss = torch.nn.functional.cross_entropy(net(prepare(images)), labels)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print("loss", loss.item())
small = models.squeezenet1_1(num_classes=2).eval()
print("squeeze", *small(images[:1]).flatten().tolist())
boxes = torch.tensor([[0.0, 0.0, 10.0, 10.0], [1.0, 1.0, 11.0, 11.0], [20.0, 20.0, 30.0, 30.0]])
print("iou", *ops.box_iou(boxes, boxes).flatten().tolist())
print("giou", ops.generalized_box_iou_loss(boxes, boxes.flip(0), reduction="mean").item())
focal = ops.sigmoid_focal_loss(torch.randn(4, 3), torch.eye(4)[:, :3], reduction="mean")
print("focal", focal.item())
