"""segmentation-models-pytorch: a U-Net and an FPN trained with the Dice loss, and scores."""

import segmentation_models_pytorch as smp
import torch

torch.manual_seed(0)
images = torch.rand(2, 3, 64, 64)
masks = (images.mean(1, keepdim=True) > 0.5).long()
for kind in (smp.Unet, smp.FPN):
    torch.manual_seed(0)
    net = kind("resnet18", encoder_weights=None, classes=1)
    loss_of = smp.losses.DiceLoss("binary")
    # Adam's first step takes the sign of each gradient, so that one activation which rounding puts
    # on the other side of zero (of some millions) would show in the fourth digit of the next loss.
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    net.eval() if kind is smp.FPN else net.train()
    for _ in range(2):
        loss = loss_of(net(images), masks)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(kind.__name__, loss.item())
scores = torch.linspace(0, 1, 64 * 64).reshape(1, 1, 64, 64).repeat(2, 1, 1, 1)
stats = smp.metrics.get_stats(scores, masks, mode="binary", threshold=0.5)
print("iou", smp.metrics.iou_score(*stats, reduction="micro").item())
print("focal", smp.losses.FocalLoss("binary")(scores, masks).item())
print("jaccard", smp.losses.JaccardLoss("binary")(scores, masks).item())
