"""tsai: InceptionTime and an LSTM-FCN on made time series."""

import torch
from tsai.models.InceptionTime import InceptionTime
from tsai.models.RNN_FCN import LSTM_FCN

for kind, more in ((InceptionTime, {}), (LSTM_FCN, {"seq_len": 20, "hidden_size": 8})):
    torch.manual_seed(0)
    net = kind(2, 3, **more)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    x, y = torch.randn(6, 2, 20), torch.randint(3, (6,))
    for _ in range(3):
        loss = torch.nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(kind.__name__, loss.item())
