"""Several devices at once: there is one here, so modules are simply called."""

from __future__ import annotations

from typing import Any, NoReturn

from weft.nn.module import Module


class DataParallel(Module):
    """Calls its module; with no other devices there is nothing to spread.

    >>> model = nn.DataParallel(nn.Linear(2, 1))
    >>> model(torch.zeros(4, 2)).shape
    torch.Size([4, 1])
    >>> [name for name, _ in model.named_parameters()]
    ['module.weight', 'module.bias']
    """

    def __init__(
        self, module: Module, device_ids: Any = None, output_device: Any = None, dim: int = 0
    ) -> None:
        super().__init__()
        self.module = module
        self.device_ids: list[int] = []
        self.dim = dim

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """What the module gives."""
        return self.module(*inputs, **kwargs)


def data_parallel(
    module: Module,
    inputs: Any,
    device_ids: Any = None,
    output_device: Any = None,
    dim: int = 0,
    module_kwargs: Any = None,
) -> Any:
    """What the module gives for these inputs."""
    inputs = inputs if isinstance(inputs, tuple) else (inputs,)
    return module(*inputs, **(module_kwargs or {}))


class DistributedDataParallel(Module):
    """Not there: weft runs in one process."""

    unavailable = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _refuse("DistributedDataParallel")


def _refuse(name: str) -> NoReturn:
    raise RuntimeError(f"torch.nn.parallel.{name} needs several processes; weft runs in one")
