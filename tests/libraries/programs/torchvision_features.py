"""torchvision: features from inside of networks, found by tracing them with torch.fx."""

import copy

import torch
from torchvision import models
from torchvision.models.feature_extraction import create_feature_extractor, get_graph_node_names

torch.manual_seed(0)
images = torch.rand(2, 3, 64, 64)
for make, wanted in (
    (models.resnet18, ["layer1.0.relu", "layer3", "avgpool"]),
    (models.mobilenet_v3_small, ["features.1", "features.4.block.1", "classifier.1"]),
    (models.squeezenet1_1, ["features.3.expand1x1", "features.6"]),
):
    torch.manual_seed(0)
    net = make(weights=None).eval()
    training, evaluation = get_graph_node_names(net)
    print(make.__name__, len(training), len(evaluation), evaluation[1], evaluation[-1])
    extractor = create_feature_extractor(net, wanted)
    for module in (extractor, copy.deepcopy(extractor).eval()):
        for name, value in module(images).items():
            print(name, *value.shape, value.mean().item(), value.std().item())
    traced = torch.fx.symbolic_trace(net)
    print(len(traced.code.splitlines()), (traced(images) - net(images)).abs().max().item())
    kinds = [node.op for node in traced.graph.nodes]
    print(*(f"{kind} {kinds.count(kind)}" for kind in sorted(set(kinds))))
