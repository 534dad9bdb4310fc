"""Find where a NaN came from, and why a gradient is what it is."""

from __future__ import annotations

import weft
from weft import nn


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encode, self.decode = nn.Linear(4, 8), nn.Linear(8, 1)
        self.spare = nn.Linear(8, 1)

    def forward(self, x: weft.Tensor) -> weft.Tensor:
        hidden = self.encode(x)
        scaled = hidden / hidden.norm(dim=1, keepdim=True)
        return self.decode(scaled).exp() + self.spare(hidden.detach())


def main() -> None:
    weft.manual_seed(0)
    model = Model()
    with weft.no_grad():
        model.encode.weight.zero_()
        model.encode.bias.zero_()  # so that the norm is zero
    x = weft.randn(3, 4)

    with weft.graph.record() as graph:
        loss = model(x).sum()
        loss.backward()
    print("loss:", loss.item())
    print(weft.graph.first_bad(graph))
    print()
    print("encode.weight:", weft.graph.why(model.encode.weight, graph))
    print()
    unused = nn.Parameter(weft.ones(2))
    print("unused:", weft.graph.why(unused, graph))


if __name__ == "__main__":
    main()
