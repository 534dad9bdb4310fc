"""gpytorch: an exact Gaussian process, trained and used to predict."""

import gpytorch
import torch

torch.manual_seed(0)
x = torch.linspace(0, 1, 24)
y = torch.sin(6 * x) + 0.1 * torch.randn(24)


class GP(gpytorch.models.ExactGP):
    def __init__(self, x, y, likelihood):
        super().__init__(x, y, likelihood)
        self.mean = gpytorch.means.ConstantMean()
        self.kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))


likelihood = gpytorch.likelihoods.GaussianLikelihood()
model = GP(x, y, likelihood).train()
likelihood.train()
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
mll = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
for _ in range(6):
    optimizer.zero_grad()
    loss = -mll(model(x), y)
    loss.backward()
    optimizer.step()
    print("loss", loss.item())
model.eval(), likelihood.eval()
with torch.no_grad():
    out = likelihood(model(torch.tensor([0.25, 0.8])))
    print("mean", *out.mean.tolist(), "variance", *out.variance.tolist())
