"""sentence-transformers: a bag of words and a dense layer, trained on pairs."""

import torch
from sentence_transformers import SentenceTransformer, losses, util
from sentence_transformers.models import BoW, Dense

torch.manual_seed(0)
words = ["the", "a", "cat", "dog", "sat", "ran", "on", "mat", "fast", "slow", "red", "blue"]
bag = BoW(words)
dense = Dense(in_features=len(words), out_features=8)
model = SentenceTransformer(modules=[bag, dense], device="cpu")
loss_of = losses.CosineSimilarityLoss(model)
pairs = [("the cat sat", "a cat sat"), ("red dog ran", "blue mat slow")]
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
labels = torch.tensor([1.0, 0.0])
for _ in range(4):
    features = [model.tokenize([p[i] for p in pairs]) for i in range(2)]
    loss = loss_of(features, labels)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print("loss", loss.item())
out = model.encode(["the cat ran", "slow red mat"], convert_to_tensor=True)
print("similar", util.cos_sim(out, out)[0, 1].item(), *out[0].tolist())
