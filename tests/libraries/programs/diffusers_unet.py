"""diffusers: a small UNet trained to denoise, then sampled from by DDPM and DDIM; a VAE."""

import torch
from diffusers import AutoencoderKL, DDIMScheduler, DDPMScheduler, UNet2DModel

torch.manual_seed(0)
unet = UNet2DModel(
    sample_size=16, in_channels=1, out_channels=1, layers_per_block=1, block_out_channels=(8, 16),
    down_block_types=("DownBlock2D", "AttnDownBlock2D"), norm_num_groups=4, attention_head_dim=4,
    up_block_types=("AttnUpBlock2D", "UpBlock2D"),
)  # fmt: skip
noise = DDPMScheduler(num_train_timesteps=50)
optimizer = torch.optim.AdamW(unet.parameters(), lr=1e-3)
x = torch.randn(4, 1, 16, 16)
for _ in range(4):
    e, t = torch.randn_like(x), torch.randint(50, (4,))
    loss = torch.nn.functional.mse_loss(unet(noise.add_noise(x, e, t), t).sample, e)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print("loss", loss.item())
unet.eval()
for kind in (DDPMScheduler, DDIMScheduler):
    schedule = kind(num_train_timesteps=50)
    schedule.set_timesteps(5)
    g = torch.Generator().manual_seed(1)
    y = torch.randn(1, 1, 16, 16, generator=g)
    with torch.no_grad():
        for t in schedule.timesteps:
            y = schedule.step(unet(y, t).sample, t, y, generator=g).prev_sample
    print(kind.__name__, y.abs().mean().item(), *y[0, 0, 0, :3].tolist())
vae = AutoencoderKL(
    block_out_channels=(8,), norm_num_groups=4, in_channels=1, out_channels=1, latent_channels=2
)
with torch.no_grad():
    print("vae", vae(x, generator=torch.Generator().manual_seed(2)).sample.abs().mean().item())
