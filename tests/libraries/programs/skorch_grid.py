"""skorch: a classifier in a scikit-learn pipeline with a grid search."""

import numpy as np
import torch
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from skorch import NeuralNetClassifier
from torch import nn

torch.manual_seed(0)
rng = np.random.default_rng(0)
x = rng.normal(size=(60, 5)).astype(np.float32)
y = (x[:, 0] + x[:, 1] > 0).astype(np.int64)


class Net(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(5, width), nn.ReLU(), nn.Linear(width, 2), nn.Softmax(-1)
        )

    def forward(self, x):
        return self.net(x)


net = NeuralNetClassifier(
    Net, max_epochs=4, lr=0.1, batch_size=16, optimizer=torch.optim.Adam, verbose=0
)
pipe = make_pipeline(StandardScaler(), net).fit(x, y)
history = pipe[-1].history
print("train", *history[:, "train_loss"])
print("valid", *history[:, "valid_loss"])
print("proba", *pipe.predict_proba(x[:2]).ravel())
search = GridSearchCV(net, {"lr": [0.01, 0.1], "module__width": [4, 8]}, cv=2, scoring="accuracy")
search.fit(x, y)
print("scores", *search.cv_results_["mean_test_score"])
