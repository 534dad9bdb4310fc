"""torchmetrics: classification, regression and text metrics over batches."""

import torch
import torchmetrics as tm

torch.manual_seed(0)
metrics = tm.MetricCollection(
    {
        "accuracy": tm.Accuracy("multiclass", num_classes=4),
        "f1": tm.F1Score("multiclass", num_classes=4, average="macro"),
        "auroc": tm.AUROC("multiclass", num_classes=4),
        "confusion": tm.ConfusionMatrix("multiclass", num_classes=4),
        "calibration": tm.CalibrationError("multiclass", num_classes=4),
        "ap": tm.AveragePrecision("multiclass", num_classes=4),
    }
)
regression = tm.MetricCollection(
    [tm.MeanSquaredError(), tm.R2Score(), tm.PearsonCorrCoef(), tm.SpearmanCorrCoef()]
)
for _ in range(3):
    metrics.update(torch.randn(20, 4).softmax(-1), torch.randint(4, (20,)))
    x = torch.randn(20)
    regression.update(x + 0.1 * torch.randn(20), x)
for name, value in {**metrics.compute(), **regression.compute()}.items():
    print(name, *value.flatten().tolist())
text = tm.text.WordErrorRate()
print("wer", text(["a b c d"], ["a b x d e"]).item())
image = tm.image.StructuralSimilarityIndexMeasure(data_range=1.0)
a = torch.rand(2, 3, 32, 32)
print("ssim", image(a, (a + 0.1 * torch.rand_like(a)).clamp(0, 1)).item())
metrics.reset()
