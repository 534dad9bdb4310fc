"""The sequence of the demo."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import weft
from weft import nn
from weft.demo import acts, digits, network
from weft.demo.terminal import Terminal, TerminalProgress

LEARNING_RATE = 3e-3


@dataclass
class Settings:
    """What can be chosen about the demo."""

    output: Path = Path("weft-demo")
    epochs: int = 16
    seed: int = 0
    live: bool = False
    open: bool = False
    wait: float = 30.0


@dataclass
class Outcome:
    """What the demo has found, for the report."""

    net: nn.Module
    test: digits.Digits
    settings: Settings
    history: network.History = field(default_factory=network.History)
    accuracy: float = 0.0
    graphs: list[Any] = field(default_factory=list)
    told: dict[str, str] = field(default_factory=dict)  # what the acts printed, by name


def run(settings: Settings, terminal: Terminal | None = None) -> Outcome:
    """Train, edit, explain, compare, compile, and write the report."""
    terminal = terminal or Terminal()
    try:
        return perform(settings, terminal)
    finally:
        terminal.end_bar()  # whatever comes now, an error or an interrupt, begins on its own line


def perform(settings: Settings, terminal: Terminal) -> Outcome:
    use_threads()
    train, test = digits.load(settings.seed)
    weft.manual_seed(settings.seed)
    net = network.Network()
    outcome = Outcome(net, test, settings)
    introduce(terminal, net, train, test)
    with following(terminal, settings) as served:
        teach(outcome, train, terminal, served)
        if served is not None:
            stay(terminal, served)
    explain(outcome, train, terminal)
    compile_it(outcome, train, terminal)
    conclude(outcome, terminal)
    return outcome


def use_threads() -> None:
    """One thread where other programs keep the processors busy: two would wait for each other."""
    if hasattr(os, "getloadavg") and os.getloadavg()[0] > weft.get_num_threads():
        weft.set_num_threads(1)


def introduce(
    terminal: Terminal, net: nn.Module, train: digits.Digits, test: digits.Digits
) -> None:
    count = sum(p.numel() for p in net.parameters())
    terminal.line("weft demo: a network learns to read handwritten digits", "bold")
    terminal.line(
        f"  {len(train):,} digits of 8x8 pixels to learn from, {len(test)} to be tested with"
    )
    terminal.line(f"  a convolutional network of {count:,} parameters")


# --- training, with edits on the way -------------------------------------------------------


def teach(outcome: Outcome, train: digits.Digits, terminal: Terminal, served: Any = None) -> None:
    """Train in two halves; between them the network is edited."""
    net, test, history, epochs = (
        outcome.net, outcome.test, outcome.history, outcome.settings.epochs,
    )  # fmt: skip
    optimizer = weft.optim.Adam(net.parameters(), lr=LEARNING_RATE)
    schedule = weft.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs, LEARNING_RATE / 50)
    progress = TerminalProgress(terminal, epochs)
    pause = 0.05 if served is not None else 0.0  # so that there is something to follow

    def tell(step: network.TrainingProgress) -> None:
        progress.step(step.epoch, step.batch, step.batches, step.loss)
        time.sleep(pause)

    def train_until(last: int) -> None:
        progress.go_on()
        while len(history.loss) < last:
            network.train_epoch(net, optimizer, train, tell, history)
            schedule.step()
            accuracy = network.evaluate(net, test, history)
            progress.epoch(len(history.loss), history.loss[-1], accuracy)

    terminal.heading("1. Training")
    half = max(epochs // 3, 1)
    train_until(half)
    outcome.graphs.append(acts.record_step(net, optimizer, train))

    terminal.heading("2. Editing the network in mid-training")
    edit(outcome, optimizer, terminal, half)
    with acts.smoother() as rules:
        outcome.graphs.append(acts.record_step(net, optimizer, train))
        terminal.line("  Training goes on with the edited network:")
        train_until(epochs)
    terminal.line(f"  {rules}")
    acts.settle(net)
    outcome.accuracy = network.evaluate(net, test)
    outcome.told["edit"] += f"\n{rules}"


def edit(outcome: Outcome, optimizer: weft.optim.Optimizer, terminal: Terminal, epoch: int) -> None:
    """Widen a layer without a change of what the network computes, and exchange an activation."""
    done, before, after = acts.grow(outcome.net, optimizer, outcome.test)
    terminal.line('  weft.graph.resize(net, "features.0", width=32): twice the channels')
    terminal.block(done, "soft")
    kept = f"test accuracy before the edit {before:.2%}, after it {after:.2%}"
    terminal.line(f"  {kept}")
    terminal.line('  weft.graph.rules().replace("gelu", op="relu", module="head.*")')
    outcome.told["edit"] = f"{done}\n{kept}"
    outcome.history.marks[epoch] = "wider, GELU"


# --- explaining and comparing --------------------------------------------------------------


def explain(outcome: Outcome, train: digits.Digits, terminal: Terminal) -> None:
    """A planted NaN, and two runs that part."""
    loss, bad = acts.planted_nan(outcome.net, train)
    terminal.heading("3. Explaining a NaN")
    terminal.line(f"  A blank scan slips into a batch, and the loss is {loss}. Why?")
    terminal.line("  weft.graph.first_bad(graph) says:")
    terminal.block(bad, "accent")
    first, second, difference = acts.two_runs(outcome.net, train)
    terminal.heading("4. Comparing two runs")
    terminal.line(f"  Same network, same digits: one run gives {first:.6f}, one {second:.6f}. Why?")
    terminal.line("  weft.graph.diff(one, other) says:")
    terminal.block(difference, "accent")
    cause = "The second run is in training mode: its dropout was left on. net.eval() was forgotten."
    terminal.line(f"  {cause}")
    outcome.told["nan"] = f"loss: {loss}\n{bad}"
    outcome.told["compare"] = f"{first:.6f} and {second:.6f}\n{difference}"


def compile_it(outcome: Outcome, train: digits.Digits, terminal: Terminal) -> None:
    """The same steps eagerly and compiled, side by side."""
    terminal.heading("5. Compiling the step")
    terminal.line(f"  {acts.STEPS} steps from the same weights, seed and digits:")
    paces = acts.compile_step(outcome.net, train)
    eager = paces[0]
    rows = [f"{'':<33}{'a step':>9}{'of eager':>10}{'learned in':>12}{'last loss':>12}"]
    for pace in paces:
        learned = "" if pace is eager else f"{max(pace.first - acts.LEARNING * pace.each, 0):.2f} s"
        rows.append(
            f"{pace.kind:<33}{pace.each * 1e3:>6.2f} ms{pace.each / eager.each:>10.2f}"
            f"{learned:>12}{pace.losses[-1]:>12.6f}"
        )
    table = "\n".join(rows)
    terminal.block(table, "accent")
    apart = max(abs(a - b) for p in paces for a, b in zip(p.losses, eager.losses, strict=True))
    words = f"The losses of all {acts.STEPS} steps agree to {apart:.0e}."
    terminal.line(f"  {words}")
    outcome.told["compile"] = f"{table}\n{words}"


def conclude(outcome: Outcome, terminal: Terminal) -> None:
    """Write the report and say where it is."""
    from weft.demo.report import write

    page = write(outcome)
    history, folder = outcome.history, outcome.settings.output
    terminal.heading("6. Results")
    terminal.line(
        f"  {outcome.accuracy:.2%} of the test digits read correctly, after {len(history.loss)} "
        f"epochs in {history.seconds:.1f} s",
        "good",
    )
    terminal.line(f"  report: {page.resolve().as_uri()}")
    called = command()
    terminal.line(f"  Look further: {called} info {folder / 'model.safetensors'}")
    terminal.line(f"                {called} graph show {folder / 'step.weft'}")
    terminal.line(f"                {called} demo --live")
    if outcome.settings.open and has_browser():
        import webbrowser

        webbrowser.open(page.resolve().as_uri())


def command() -> str:
    """How the reader can call weft: by its name where the shell finds it, else by its path."""
    found = shutil.which("weft")
    beside = Path(sys.executable).with_name("weft")
    if not beside.exists() or (found is not None and os.path.samefile(found, beside)):
        return "weft"
    try:
        return str(beside.relative_to(Path.cwd()))
    except ValueError:
        return str(beside)


def has_browser() -> bool:
    """Whether a page can be opened; without a screen some systems would open it in the terminal."""
    return sys.platform != "linux" or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    )


# --- following in the browser --------------------------------------------------------------


@contextlib.contextmanager
def following(terminal: Terminal, settings: Settings) -> Any:
    """Serve the graph page of this training, if it was asked for, and wait for a reader."""
    if not settings.live:
        yield None
        return
    with weft.graph.serve(open=settings.open and has_browser(), title="weft demo") as served:
        terminal.line(
            "  The address above shows the training live: look into it, pause it, edit it."
        )
        limit = time.monotonic() + settings.wait
        while not read_within(served, 1.0) and time.monotonic() < limit:
            time.sleep(0.1)
        yield served


def read_within(served: Any, seconds: float) -> bool:
    """Whether a browser has asked for the page lately."""
    return time.monotonic() - served.source.read_at < seconds


def stay(terminal: Terminal, served: Any) -> None:
    """Keep the page until no browser has it open any more."""
    if read_within(served, 3.0):
        terminal.line("  The training has ended; the page stays while it is open. Ctrl-C goes on.")
    with contextlib.suppress(KeyboardInterrupt):
        while read_within(served, 3.0):
            time.sleep(0.2)
