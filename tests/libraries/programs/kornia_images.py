"""kornia: filters, geometry, colour, augmentations and a homography learned by gradients."""

import kornia as K
import torch

torch.manual_seed(0)
x = torch.rand(2, 3, 24, 24)
print("blur", K.filters.gaussian_blur2d(x, (5, 5), (1.5, 1.5)).std().item())
print("sobel", K.filters.sobel(x).mean().item())
print("canny", K.filters.canny(x)[0].mean().item())
print("hsv", *K.color.rgb_to_hsv(x).mean((0, 2, 3)).tolist())
print("lab", *K.color.rgb_to_lab(x).mean((0, 2, 3)).tolist())
print("rotate", K.geometry.rotate(x, torch.tensor([30.0, 60.0])).mean().item())
print("ssim", K.metrics.ssim(x, x.flip(-1), 5).mean().item())
torch.manual_seed(1)
augment = K.augmentation.AugmentationSequential(
    K.augmentation.RandomAffine(20.0, p=1.0), K.augmentation.ColorJitter(0.2, 0.2, 0.2, 0.1, p=1.0)
)
print("augmented", augment(x).mean().item())
matrix = torch.eye(3)[None].requires_grad_()
optimizer = torch.optim.Adam([matrix], lr=1e-2)
goal = K.geometry.translate(x[:1], torch.tensor([[2.0, 1.0]]))
for _ in range(4):
    loss = (K.geometry.warp_perspective(x[:1], matrix, (24, 24)) - goal).abs().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print("loss", loss.item())
