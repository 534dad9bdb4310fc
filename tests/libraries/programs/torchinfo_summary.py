"""torchinfo: a summary of a network with its sizes."""

import torch
from torch import nn
from torchinfo import summary

torch.manual_seed(0)
net = nn.Sequential(
    nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(512, 4)
)
found = summary(
    net, input_size=(2, 3, 8, 8), verbose=0, col_names=("output_size", "num_params", "mult_adds")
)
print(found)
print("counts", found.total_params, found.total_mult_adds, found.total_output_bytes)
lstm = summary(nn.LSTM(4, 5, 2), input_size=(7, 1, 4), verbose=0)
print("lstm", lstm.total_params, lstm.total_mult_adds)
