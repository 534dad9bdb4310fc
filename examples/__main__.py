"""Run the examples as they are meant to be run, and write what they reach into examples/README.md.

    python -m examples dqn gan                      # these, with seed 0
    python -m examples --seeds 0 1 2                # all that need no files
    python -m examples cifar10 --data FOLDER        # one that does
    python -m examples --table                      # only write the table again

What is measured is kept in examples/results.json. Each example runs in one thread, and its time is
the processor time that it takes, so that a busy machine does not change it much.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import time
from typing import Any

FOLDER = pathlib.Path(__file__).resolve().parent
RESULTS, PAGE = FOLDER / "results.json", FOLDER / "README.md"
MARKS = "<!-- made by python -m examples -->", "<!-- end -->"

EXAMPLES = {
    "linear_regression": "linear regression",
    "digits_mlp": "multilayer perceptron, seven-segment digits",
    "digits_cnn": "convolutional network, handwritten digits",
    "fashion_mnist": "Fashion-MNIST from files",
    "cifar10": "CIFAR-10 from files",
    "cnn": "directions of stripes, batch norm and dropout",
    "resnet": "shapes, a residual network",
    "inception": "sizes of blobs, an inception network",
    "detection_shapes": "detection, a small RetinaNet",
    "segmentation_shapes": "segmentation, a U-Net",
    "super_resolution": "super-resolution",
    "autoencoder": "autoencoder",
    "vae": "variational autoencoder",
    "gan": "generative adversarial network",
    "gru_sequence": "forecast of waves, a GRU",
    "rnn_names": "character language model, an LSTM",
    "gpt_char": "character language model, a GPT",
    "transformer_encoder": "transformer",
    "seq2seq_attention": "sequence to sequence with attention",
    "text_classification": "text classification",
    "translation": "translation",
    "ctc": "CTC, messages of tones",
    "ctc_speech": "CTC, synthetic speech",
    "multimodal": "pictures and text together",
    "dqn": "DQN, CartPole",
    "reinforce": "REINFORCE, CartPole",
    "actor_critic": "actor-critic (A2C), CartPole",
    "a3c": "A3C in several processes, CartPole",
    "recommender": "recommender, matrix factorisation",
    "maml": "meta-learning (MAML, second order)",
    "tree_network": "tree-structured network",
    "online_drift": "online learning, a stream with drift",
    "custom_function": "custom autograd functions, one-bit weights",
    "distillation": "distillation",
    "pruning": "pruning",
}
# The trainer and the graph have pages of their own, and are measured by nothing but their tests.
OTHERS = ("trainer", "graph_compare", "graph_edit", "graph_grow", "graph_nan")


def command(name: str) -> list[str]:
    """How the example is started, as a user would."""
    path = f"examples/{name}.py"
    text = (FOLDER / f"{name}.py").read_text() if (FOLDER / f"{name}.py").exists() else ""
    return ["weft", "run", path, *(["--data", "FOLDER"] if needs_files(text) else [])]


def needs_files(text: str) -> bool:
    return '"--data", default="data"' in text


def measure(name: str, seed: int, data: str | None) -> dict[str, Any] | None:
    """Run an example to its end; what it says and takes, or None without its files."""
    words = [data if word == "FOLDER" else word for word in command(name)[1:]]
    if None in words:
        print(f"{name}: needs --data", flush=True)
        return None
    if "--seed" in (FOLDER / f"{name}.py").read_text():
        words += ["--seed", str(seed)]
    elif seed:
        return None
    began = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "weft", *words],
        stdout=subprocess.PIPE,
        text=True,
        cwd=FOLDER.parent,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert process.stdout is not None
    said = process.stdout.read().splitlines() or [""]
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    result = next((line for line in reversed(said) if line.startswith("result: ")), said[-1])
    found = {
        "result": result.removeprefix("result: "),
        "reached": process.returncode == 0,
        "seconds": round(usage.ru_utime + usage.ru_stime, 1),
    }
    wall = time.monotonic() - began
    print(f"{name} seed {seed}: {found} ({wall:.0f} s by the clock)", flush=True)
    return found


def keep(name: str, seed: int, found: dict[str, Any]) -> None:
    """Write it down, beside what other runs have found meanwhile."""
    results = load()
    results.setdefault(name, {})[str(seed)] = found
    ordered = {key: results[key] for key in EXAMPLES if key in results}
    RESULTS.write_text(json.dumps(ordered, indent=1) + "\n")


def load() -> dict[str, Any]:
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


def table(results: dict[str, Any]) -> str:
    """The table of the page."""
    lines = ["| what | command | time | checked result | other seeds |", "|---|---|---|---|---|"]
    for name, what in EXAMPLES.items():
        runs = results.get(name, {})
        first = runs.get("0")
        seconds = f"{first['seconds']:.0f} s" if first else ""
        told = _told(first) if first else "not measured"
        others = ", ".join(_value(run) for seed, run in sorted(runs.items()) if seed != "0")
        lines.append(f"| {what} | `{' '.join(command(name))}` | {seconds} | {told} | {others} |")
    return "\n".join(lines)


def _told(run: dict[str, Any]) -> str:
    return run["result"] + ("" if run["reached"] else ": **missed**")


def _value(run: dict[str, Any]) -> str:
    found = re.match(r"\d[\d.]*%?", run["result"])
    return (found[0] if found else "reached") + ("" if run["reached"] else " (missed)")


def page(results: dict[str, Any]) -> str:
    """The page with its table made anew."""
    before, rest = PAGE.read_text().split(MARKS[0])
    return f"{before}{MARKS[0]}\n{table(results)}\n{MARKS[1]}{rest.split(MARKS[1])[1]}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="examples; all by default")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--data", help="the folder with data sets, for those that need it")
    parser.add_argument("--table", action="store_true", help="run nothing")
    options = parser.parse_args()
    unknown = set(options.names) - EXAMPLES.keys()
    if unknown:
        parser.error(f"no such example: {', '.join(sorted(unknown))}")
    there = [name for name in options.names or EXAMPLES if (FOLDER / f"{name}.py").exists()]
    missed = []
    for name, seed in [] if options.table else [(n, s) for s in options.seeds for n in there]:
        found = measure(name, seed, options.data)
        if found is not None:
            keep(name, seed, found)
            missed += [] if found["reached"] else [f"{name} (seed {seed})"]
    PAGE.write_text(page(load()))
    if missed:
        raise SystemExit(f"missed: {', '.join(missed)}")


if __name__ == "__main__":
    main()
