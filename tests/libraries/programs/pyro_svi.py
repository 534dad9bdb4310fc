"""pyro-ppl: variational inference, and samples by NUTS and importance."""

import pyro
import pyro.distributions as dist
import torch
from pyro.infer import MCMC, NUTS, SVI, Predictive, Trace_ELBO
from pyro.infer.autoguide import AutoDiagonalNormal

pyro.set_rng_seed(0)
data = torch.randn(30) * 0.5 + 2


def model(data=None):
    mean = pyro.sample("mean", dist.Normal(0, 5))
    scale = pyro.sample("scale", dist.LogNormal(0, 1))
    with pyro.plate("data", 30):
        return pyro.sample("x", dist.Normal(mean, scale), obs=data)


guide = AutoDiagonalNormal(model)
svi = SVI(model, guide, pyro.optim.Adam({"lr": 0.05}), Trace_ELBO())
print("loss", *(svi.step(data) for _ in range(20)))
print("median", *(v.item() for v in guide.median().values()))
samples = Predictive(model, guide=guide, num_samples=5)()
print("predicted", samples["x"].mean().item())
mcmc = MCMC(NUTS(model), num_samples=10, warmup_steps=10, disable_progbar=True)
mcmc.run(data)
print("nuts", *mcmc.get_samples()["mean"][:3].tolist())
