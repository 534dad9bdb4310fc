"""torchdiffeq: a neural ODE trained through its adjoint by three solvers."""

import torch
from torchdiffeq import odeint, odeint_adjoint

torch.manual_seed(0)


class Field(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(
            torch.nn.Linear(2, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2)
        )

    def forward(self, t, y):
        return self.net(y)


t, start = torch.linspace(0, 1, 5), torch.tensor([[1.0, 0.0]])
for solver in ("dopri5", "rk4", "euler"):
    torch.manual_seed(0)
    field = Field()
    optimizer = torch.optim.Adam(field.parameters(), lr=1e-2)
    for _ in range(3):
        loss = odeint_adjoint(field, start, t, method=solver)[-1].pow(2).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(solver, loss.item())
print("plain", odeint(field, start, t).sum().item())
