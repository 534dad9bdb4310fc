"""monai: a UNet with the Dice loss and transforms, inferred by sliding windows."""

import torch
from monai.inferers import sliding_window_inference
from monai.losses import DiceCELoss
from monai.metrics import DiceMetric
from monai.networks.nets import UNet
from monai.transforms import Compose, EnsureChannelFirst, NormalizeIntensity, RandFlip, ToTensor
from monai.utils import set_determinism

set_determinism(0)
prepare = Compose(
    [EnsureChannelFirst(channel_dim="no_channel"), NormalizeIntensity(), RandFlip(0.5), ToTensor()]
)
x = torch.stack([torch.as_tensor(prepare(torch.rand(16, 16).numpy())) for _ in range(2)])
y = (x > 0).float()
net = UNet(2, 1, 2, channels=(4, 8), strides=(2,), num_res_units=1)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
for _ in range(4):
    loss = DiceCELoss(to_onehot_y=True, softmax=True)(net(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print("loss", loss.item())
net.eval()
with torch.no_grad():
    out = sliding_window_inference(x, (8, 8), 4, net, overlap=0.25)
metric = DiceMetric()
metric(out.argmax(1, keepdim=True), y)
print("dice", metric.aggregate().item(), out.mean().item())
