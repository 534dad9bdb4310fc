"""The report: what was learned, what was misread, and what the network looks at."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np

import weft
from weft import Tensor, viz
from weft.demo.network import confusion, saliency
from weft.demo.program import Outcome
from weft.io import atomic
from weft.io.safetensors import save_safetensors

SHOWN = 16  # images of a kind


def write(outcome: Outcome) -> Path:
    """Write all files of the report; the path of its first page."""
    folder = outcome.settings.output
    folder.mkdir(parents=True, exist_ok=True)
    save_safetensors(outcome.net.state_dict(), folder / "model.safetensors")
    outcome.graphs[-1].save(folder / "step.weft")
    weft.graph.show(
        *outcome.graphs, title="weft demo: before and after the edits", open=False,
        path=folder / "graph.html",
    )  # fmt: skip
    write_text(folder / "metrics.csv", metrics(outcome))
    charts = curves(outcome)
    for name, picture in charts.items():
        write_text(folder / f"{name}.svg", viz.standalone(picture))
    page(outcome, list(charts.values())).save(folder / "index.html")
    return folder / "index.html"


def write_text(path: Path, words: str) -> None:
    with atomic.replacing(path) as file:
        file.write(words.encode())


def metrics(outcome: Outcome) -> str:
    history, out = outcome.history, io.StringIO()
    rows = csv.writer(out, lineterminator="\n")
    rows.writerow(("epoch", "loss", "train_accuracy", "test_loss", "test_accuracy"))
    columns = (history.loss, history.train_accuracy, history.test_loss, history.accuracy)
    for epoch, row in enumerate(zip(*columns, strict=True), 1):
        rows.writerow((epoch, *(f"{value:.6g}" for value in row)))
    return out.getvalue()


def curves(outcome: Outcome) -> dict[str, str]:
    history = outcome.history
    epochs = range(1, len(history.loss) + 1)
    common: dict[str, Any] = {
        "x": list(epochs),
        "x_label": "epoch",
        "marks": history.marks,
        "width": 505,
    }
    return {
        "loss": viz.line_chart(
            {"training": history.loss, "test": history.test_loss},
            title="Loss", y_label="cross-entropy, log scale", log_y=True, **common,
        ),
        "accuracy": viz.line_chart(
            {
                "training": [100 * a for a in history.train_accuracy],
                "test": [100 * a for a in history.accuracy],
            },
            title="Accuracy", y_label="percent correct", y_range=(None, 100), **common,
        ),
    }  # fmt: skip


def page(outcome: Outcome, charts: list[str]) -> viz.Report:
    """The first page."""
    history = outcome.history
    count = sum(p.numel() for p in outcome.net.parameters())
    report = viz.Report(
        "Reading handwritten digits",
        "A convolutional network, trained by weft on the digits that come with scikit-learn. "
        "This page is a file that works offline: keep it, or send it on.",
    )
    report.facts(
        {
            "of the test digits correct": f"{outcome.accuracy:.1%}",
            "training time": f"{history.seconds:.1f} s",
            "epochs": str(len(history.loss)),
            "parameters": f"{count:,}",
        }
    )
    report.section("Training", "The dashed line marks where the network was edited.")
    report.pictures(*charts)
    mistakes(report, outcome)
    looks(report, outcome)
    report.section("Edited in mid-training", "The first convolution was given twice its channels, "
                   "without a change of what the network computes; the optimizer's state followed. "
                   "From then on a rule replaced ReLU by GELU.")  # fmt: skip
    report.output(outcome.told["edit"])
    report.section("A NaN, explained", "A blank image was put into a batch on purpose. "
                   "weft.graph.first_bad names the op that made the first NaN, its line, and what "
                   "it read.")  # fmt: skip
    report.output(outcome.told["nan"])
    report.section("Two runs, compared", "The same network on the same digits, with dropout left "
                   "on in one of the two runs. weft.graph.diff says where they part.")  # fmt: skip
    report.output(outcome.told["compare"])
    report.section("Eager and compiled", "The same training step from the same weights: as Python "
                   "runs it, compiled, and static, where Python is skipped.")  # fmt: skip
    report.output(outcome.told["compile"])
    report.section("Files")
    report.link("graph.html", "graph.html", "the graph of a training step, before and after the "
                "edits: forward, backward and update of every op")  # fmt: skip
    report.link("model.safetensors", "model.safetensors", "the trained parameters")
    report.link("step.weft", "step.weft", "the graph as a file: weft graph show step.weft")
    report.link("metrics.csv", "metrics.csv", "the numbers behind the curves")
    return report


def mistakes(report: viz.Report, outcome: Outcome) -> None:
    """What was taken for what."""
    test = outcome.test
    counts, read = confusion(outcome.net, test)
    wrong = (read != test.labels).nonzero().flatten().tolist()
    some = "none was misread" if not wrong else f"{len(wrong)} of {len(test)} were misread"
    report.section("What it gets wrong", f"Of the test digits, {some}.")
    pictures = [viz.confusion_matrix(counts, labels=range(10), title="Confusion matrix")]
    if wrong:
        shown = wrong[:SHOWN]
        pictures.append(
            viz.image_grid(
                [test.images[k, 0] for k in shown],
                captions=[f"read as {read[k].item()}\nis {test.labels[k].item()}" for k in shown],
                title="Misread digits" + (f", {SHOWN} of them" if len(wrong) > SHOWN else ""),
                columns=min(len(shown), 5), ink=True, size=92,
            )
        )  # fmt: skip
    report.pictures(*pictures)


def looks(report: viz.Report, outcome: Outcome) -> None:
    """Which pixels matter to the network."""
    test = outcome.test
    chosen = [int((test.labels == digit).nonzero()[0]) for digit in range(10)]
    images = test.images[chosen]
    heat = saliency(outcome.net, images)
    report.section(
        "What it looks at",
        "The warmer a pixel, the more a change of it would move the score of the digit that was "
        "read: the size of the gradient by that pixel.",
    )
    report.pictures(
        viz.image_grid(
            [[image[0] * 0.4, overlay(each)] for image, each in zip(images, heat, strict=True)],
            captions=[f"read as {k}" for k in outcome.net(images).argmax(1).tolist()],
            title="Saliency", columns=10, ink=True, size=92,
        )
    )  # fmt: skip


def overlay(heat: Tensor) -> np.ndarray:
    """A layer of orange, as strong as the values; small ones are held back."""
    strength = heat.numpy()[..., None]
    colour = np.broadcast_to(np.array([0.98, 0.35, 0.05]), (*heat.shape, 3))
    return np.concatenate([colour, strength**1.5], axis=-1)
