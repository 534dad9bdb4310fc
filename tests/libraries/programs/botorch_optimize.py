"""botorch: a Gaussian process fitted to a function, and the next point by expected improvement."""

import warnings

import torch
from botorch.acquisition import LogExpectedImprovement, qUpperConfidenceBound
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.optim import optimize_acqf
from botorch.sampling import SobolQMCNormalSampler
from gpytorch.mlls import ExactMarginalLogLikelihood

warnings.simplefilter("ignore")
torch.manual_seed(0)
x = torch.rand(8, 2, dtype=torch.float64)
y = -((x - 0.4) ** 2).sum(-1, keepdim=True)
model = SingleTaskGP(x, y)
fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
post = model.posterior(torch.full((1, 2), 0.5, dtype=torch.float64))
print("posterior", post.mean.item(), post.variance.item())
bounds = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
torch.manual_seed(1)
best = LogExpectedImprovement(model, best_f=y.max())
print("improvement", best(torch.full((1, 2), 0.3, dtype=torch.float64)).item())
sampler = SobolQMCNormalSampler(torch.Size([16]), seed=0)
upper = qUpperConfidenceBound(model, beta=0.2, sampler=sampler)
print("upper", upper(x[:2]).item())
point, value = optimize_acqf(upper, bounds, q=1, num_restarts=2, raw_samples=16)
print("chosen", *(round(v, 4) for v in point.flatten().tolist()))
