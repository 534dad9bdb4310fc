"""Programs as graphs: trace a module, look at what it does, change it, and run it again.

>>> import weft
>>> class Net(weft.nn.Module):
...     def __init__(self):
...         super().__init__()
...         self.layer = weft.nn.Linear(2, 2)
...
...     def forward(self, x):
...         return weft.relu(self.layer(x))
>>> traced = weft.fx.symbolic_trace(Net())
>>> print(traced.code.strip())
def forward(self, x):
    layer = self.layer(x);  x = None
    relu = torch.relu(layer);  layer = None
    return relu

Tracing runs a program once with proxies for its inputs, so it can't see control flow on values;
``weft.graph.record`` keeps what a program computed on real ones.
"""

from __future__ import annotations

from weft.fx._symbolic_trace import PH, Tracer, symbolic_trace, wrap
from weft.fx.graph import CodeGen, Graph
from weft.fx.graph_module import GraphModule
from weft.fx.interpreter import Interpreter, Transformer
from weft.fx.node import Node, has_side_effect, map_arg
from weft.fx.proxy import Proxy
from weft.fx.subgraph_rewriter import replace_pattern

__all__ = [
    "PH",
    "CodeGen",
    "Graph",
    "GraphModule",
    "Interpreter",
    "Node",
    "Proxy",
    "Tracer",
    "Transformer",
    "has_side_effect",
    "map_arg",
    "replace_pattern",
    "symbolic_trace",
    "wrap",
]
