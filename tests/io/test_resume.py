"""A training that is stopped and resumed goes on bit by bit as if it had never stopped."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft as torch
from weft.utils import data
from weft.utils.checkpointing import load_checkpoint, save_checkpoint

# Trains for some steps, on from a checkpoint if there is one, and prints losses and a digest.
PROGRAM = """
import hashlib, json, random, sys
import numpy as np
import weft as torch
from weft.utils.checkpointing import load_checkpoint, save_checkpoint

options = json.loads(sys.argv[1])
torch.manual_seed(3); random.seed(4); np.random.seed(5)


class Noisy(torch.utils.data.Dataset):
    def __len__(self):
        return 23

    def __getitem__(self, i):
        x = torch.arange(4.0) * i / 23 + 0.1 * torch.randn(4)
        return x + random.random() + np.random.rand(), x.sum()


def loader():
    generator = torch.Generator().manual_seed(8) if options["generator"] else None
    return torch.utils.data.DataLoader(
        Noisy(), 3, shuffle=True, num_workers=options["workers"], generator=generator,
        persistent_workers=options["persistent"],
    )


model = torch.nn.Sequential(
    torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU(), torch.nn.Dropout(0.3),
    torch.nn.Linear(8, 1),
)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 40)
parts = dict(model=model, optimizer=optimizer, scheduler=scheduler, loader=loader())
step = epoch = 0
if options["load"]:
    found = load_checkpoint(options["load"], **parts)
    step, epoch = found["step"], found["epoch"]
losses = []
for epoch in range(epoch, 100):
    for x, y in parts["loader"]:
        optimizer.zero_grad()
        loss = (model(x).squeeze(1) - y).square().mean()
        loss.backward()
        optimizer.step()
        scheduler.step()
        step += 1
        losses.append(loss.item().hex())
        if step == options["save_at"]:
            save_checkpoint(options["save"], step=step, epoch=epoch, **parts)
        if step == options["until"]:
            break
    if step == options["until"]:
        break
digest = hashlib.sha256()
for value in [*model.state_dict().values(), *(
    t for s in optimizer.state_dict()["state"].values() for t in s.values()
), torch.get_rng_state()]:
    digest.update(value.numpy().tobytes())
print(json.dumps([losses, digest.hexdigest(), scheduler.get_last_lr(), random.random()]))
"""


def train(tmp_path: Path, **options: Any) -> Any:
    given = {"load": None, "save": None, "save_at": -1, "until": 30, "persistent": False}
    given |= {"generator": False, "workers": 0} | options
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(given)],
        capture_output=True, text=True, timeout=100, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("options", "stop"),
    [
        ({}, 11),
        ({"generator": True}, 16),
        ({"workers": 2}, 13),
        ({"workers": 2, "generator": True, "persistent": True}, 19),
    ],
    ids=["local", "generator-at-the-end-of-an-epoch", "workers", "persistent-workers"],
)
def test_a_resumed_training_is_the_same_to_the_bit(
    tmp_path: Path, options: dict[str, Any], stop: int
) -> None:
    file = str(tmp_path / "last.pt")
    straight = train(tmp_path, save=file, save_at=stop, **options)
    resumed = train(tmp_path, load=file, **options)
    assert len(straight[0]) == 30 and len(set(straight[0])) == 30
    assert resumed[0] == straight[0][stop:]
    assert resumed[1:] == straight[1:]


# ------------------------------------------------------------------ loaders


class Random(data.Dataset):
    """Samples that show everything random that they depend on."""

    def __len__(self) -> int:
        return 13

    def __getitem__(self, i: int) -> Any:
        return i, torch.rand(()).item(), random.random(), np.random.rand()


class Stream(data.IterableDataset):
    """A stream that draws, of which each worker has its share."""

    def __iter__(self) -> Any:
        info = data.get_worker_info()
        first, step = (info.id, info.num_workers) if info else (0, 1)
        order = torch.randperm(17 - first).tolist()
        for i in order[first::step]:
            yield i, random.random() if info else 0.0


class Stateful(data.IterableDataset):
    """A stream that knows where it is and draws from the global generators."""

    def __init__(self) -> None:
        self.at = self.opened = 0

    def state_dict(self) -> dict[str, Any]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.at = state["at"]

    def __iter__(self) -> Any:
        self.opened += 1
        while self.at < 12:
            self.at += 1
            yield self.at, torch.rand(()).item()
        self.at = 0


class Iterating(data.IterableDataset):
    """Its iterator is what knows where it is."""

    class Walk:
        def __init__(self) -> None:
            self.at = 0

        def __iter__(self) -> Any:
            return self

        def __next__(self) -> int:
            self.at += 1
            if self.at > 12:
                raise StopIteration
            return self.at

        def state_dict(self) -> int:
            return self.at

        def load_state_dict(self, state: int) -> None:
            self.at = state

    def __iter__(self) -> Any:
        return self.Walk()


class Backwards(data.Sampler):
    """A user's sampler that draws from Python's generator when asked for an iterator."""

    def __len__(self) -> int:
        return 13

    def __iter__(self) -> Any:
        order = list(range(13))
        random.shuffle(order)
        return iter(order)


def seed() -> None:
    torch.manual_seed(1)
    random.seed(2)
    np.random.seed(3)


def global_draws() -> Any:
    return torch.rand(()).item(), random.random(), np.random.rand()


def plain(batch: Any) -> Any:
    if isinstance(batch, (list, tuple)):
        return [plain(part) for part in batch]
    return batch.tolist() if isinstance(batch, torch.Tensor) else batch


LOADERS = {
    "in order": lambda: data.DataLoader(Random(), 2),
    "shuffled": lambda: data.DataLoader(Random(), 2, shuffle=True),
    "single samples": lambda: data.DataLoader(Random(), None, shuffle=True),
    "subset": lambda: data.DataLoader(Random(), 2, sampler=data.SubsetRandomSampler(range(9))),
    "weighted": lambda: data.DataLoader(
        Random(), 2, sampler=data.WeightedRandomSampler([1.0, 2.0, 3.0] * 4, 40)
    ),
    "with replacement": lambda: data.DataLoader(
        Random(), 3,
        sampler=data.RandomSampler(
            range(13), replacement=True, num_samples=80, generator=torch.Generator().manual_seed(6)
        ),
    ),
    "own sampler": lambda: data.DataLoader(Random(), 3, sampler=Backwards()),
    "batch sampler": lambda: data.DataLoader(
        Random(), batch_sampler=data.BatchSampler(Backwards(), 2, True)
    ),
    "distributed": lambda: data.DataLoader(
        Random(), 2, sampler=data.distributed.DistributedSampler(range(13), 2, 1)
    ),
    "workers": lambda: data.DataLoader(Random(), 2, shuffle=True, num_workers=2),
    "no prefetching": lambda: data.DataLoader(
        Random(), 2, shuffle=True, num_workers=2, prefetch_factor=0
    ),
    "workers and a generator": lambda: data.DataLoader(
        Random(), 2, shuffle=True, num_workers=2, generator=torch.Generator().manual_seed(7)
    ),
    "persistent workers": lambda: data.DataLoader(
        Random(), 2, shuffle=True, num_workers=2, persistent_workers=True
    ),
    "stream": lambda: data.DataLoader(Stream(), 2),
    "stream in workers": lambda: data.DataLoader(Stream(), 2, num_workers=3),
    "stream in persistent workers": lambda: data.DataLoader(
        Stream(), 2, num_workers=2, persistent_workers=True
    ),
    "stateful stream": lambda: data.DataLoader(Stateful(), 5),
    "stateful stream in workers": lambda: data.DataLoader(Stateful(), 2, num_workers=2),
    "stateful iterator": lambda: data.DataLoader(Iterating(), 5),
    "stateful iterator in a worker": lambda: data.DataLoader(Iterating(), 5, num_workers=1),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize("stop", [0, 1, 4, "between", "at the end"])
@pytest.mark.parametrize("kind", LOADERS)
def test_a_loader_goes_on_where_it_was(tmp_path: Path, kind: str, stop: Any) -> None:
    make = LOADERS[kind]
    seed()
    loader = make()
    file, rest, saved = str(tmp_path / "x.pt"), [], False

    def save() -> None:
        nonlocal saved
        saved = True
        save_checkpoint(file, loader=loader)

    length = sum(1 for _ in make())
    seed()
    for epoch in range(3):
        batches = iter(loader)
        if epoch == 1 and stop == 0:
            save()
        for i, batch in enumerate(batches):
            if saved:
                rest.append(plain(batch))
            torch.rand(3)  # as dropout in a model draws, between the batches
            wanted = length if stop == "at the end" else stop
            if epoch == 1 and i + 1 == wanted:
                save()
        if saved:
            rest.append("end")
        if epoch == 1 and stop == "between":
            save()
    assert saved or (stop == 4 and length < 4)
    if not saved:
        return
    after = global_draws()
    resumed = make()
    torch.manual_seed(99)
    load_checkpoint(file, loader=resumed)
    got: list[Any] = []
    for _ in range(1 if stop == "between" else 2):
        for batch in resumed:
            got.append(plain(batch))
            torch.rand(3)
        got.append("end")
    assert got == rest
    assert global_draws() == after


def test_a_resumed_loader_can_be_saved_again() -> None:
    seed()
    first = data.DataLoader(Random(), 2, shuffle=True, num_workers=1)
    whole = [plain(b) for b in first]
    seed()
    got = []
    state: Any = None
    for _ in range(len(whole)):
        loader = data.DataLoader(Random(), 2, shuffle=True, num_workers=1)
        if state is not None:
            loader.load_state_dict(state)
            assert loader.state_dict() == state  # loaded and saved again without a step
        got.append(plain(next(iter(loader))))
        state = loader.state_dict()
    assert got == whole


def test_leaving_the_loop_keeps_the_position_for_a_save_and_not_for_the_next_loop() -> None:
    loader = data.DataLoader(range(6), 2)
    for _ in loader:
        break
    other = data.DataLoader(range(6), 2)
    other.load_state_dict(loader.state_dict())
    assert [plain(b) for b in other] == [[2, 3], [4, 5]]
    assert [plain(b) for b in other] == [plain(b) for b in loader] == [[0, 1], [2, 3], [4, 5]]


def test_out_of_order_batches_are_each_taken_once() -> None:
    import time

    class Slow(data.Dataset):
        def __len__(self) -> int:
            return 12

        def __getitem__(self, i: int) -> int:
            time.sleep(0.3 if i == 0 else 0.0)
            return i

    def make() -> data.DataLoader:
        return data.DataLoader(Slow(), num_workers=2, in_order=False)

    loader = make()
    batches = iter(loader)
    seen = [next(batches).item() for _ in range(4)]
    assert 0 not in seen
    other = make()
    other.load_state_dict(loader.state_dict())
    rest = [b.item() for b in other]
    assert sorted(seen + rest) == list(range(12))


def test_a_state_that_does_not_fit_is_refused() -> None:
    loader = data.DataLoader(range(6), 2)
    next(iter(loader))
    state = loader.state_dict()
    with pytest.raises(ValueError, match="had 3 batches and this one has 4"):
        data.DataLoader(range(8), 2).load_state_dict(state)
    with pytest.raises(ValueError, match="0 generators of its own, and this one from 1"):
        data.DataLoader(range(6), 2, generator=torch.Generator()).load_state_dict(state)
    with pytest.raises(ValueError, match="takes what its state_dict gave"):
        loader.load_state_dict({"at": 3})
    stream = data.DataLoader(Stream(), 2)
    next(iter(stream))
    with pytest.raises(ValueError, match="num_workers was 0 and is 1 now"):
        data.DataLoader(Stream(), 2, num_workers=1).load_state_dict(stream.state_dict())
    drawing = data.DataLoader(Random(), 2, num_workers=1)
    next(iter(drawing))
    with pytest.warns(UserWarning, match="num_workers was 1 and is 0 now"):
        data.DataLoader(Random(), 2).load_state_dict(drawing.state_dict())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        other = data.DataLoader(range(6), 2, num_workers=1)
        other.load_state_dict(state)
    assert [plain(b) for b in other] == [[2, 3], [4, 5]]


# ------------------------------------------------------------------ the file


def parts() -> dict[str, Any]:
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return {"model": model, "optimizer": optimizer}


def test_plain_values_come_back(tmp_path: Path) -> None:
    file = tmp_path / "x.pt"
    values = {"epoch": 3, "best": np.float32(0.5), "names": ["a", ("b", None)], "t": torch.ones(2)}
    save_checkpoint(file, **parts(), **values)
    found = load_checkpoint(file, **parts())
    assert (found["epoch"], found["best"], found["names"]) == (3, 0.5, ["a", ("b", None)])
    assert type(found["best"]) is float and torch.equal(found["t"], torch.ones(2))
    assert load_checkpoint(file).keys() == found.keys()


def test_what_could_not_be_loaded_is_not_saved(tmp_path: Path) -> None:
    file = tmp_path / "x.pt"
    save_checkpoint(file, epoch=1)
    before = file.read_bytes()
    with pytest.raises(TypeError, match=r"values\['f'\]\[0\] is a builtins.function.*\n.*resume"):
        save_checkpoint(file, f=[lambda: 1])
    assert file.read_bytes() == before


def test_a_file_or_a_name_that_does_not_fit(tmp_path: Path) -> None:
    file = tmp_path / "x.pt"
    torch.save({"model": 1}, file)
    with pytest.raises(ValueError, match="not a file that save_checkpoint wrote"):
        load_checkpoint(file, **parts())
    save_checkpoint(file, **parts())
    state = torch.get_rng_state()
    given = parts()
    weight = given["model"].weight.clone()
    with pytest.raises(KeyError, match="no state for scheduler; it has model, optimizer"):
        load_checkpoint(file, **given, scheduler=given["model"])
    assert torch.equal(given["model"].weight, weight)
    torch.set_rng_state(state)
    torch.rand(1)
    moved = torch.get_rng_state()
    load_checkpoint(file, restore_random=False, **given)
    assert torch.equal(torch.get_rng_state(), moved)


def test_torch_reads_a_checkpoint(tmp_path: Path) -> None:
    real = pytest.importorskip("torch")
    file = tmp_path / "x.pt"
    given = parts()
    save_checkpoint(file, **given, epoch=2, loader=data.DataLoader(Random(), 2, shuffle=True))
    read = real.load(file, weights_only=True)
    model = real.nn.Linear(2, 2)
    model.load_state_dict(read["states"]["model"])
    assert model.weight.tolist() == given["model"].weight.tolist() and read["values"]["epoch"] == 2


def test_schedulers_of_every_kind_can_be_saved(tmp_path: Path) -> None:
    schedules = torch.optim.lr_scheduler
    optimizer = parts()["optimizer"]
    made = [
        schedules.StepLR(optimizer, 2),
        schedules.MultiStepLR(optimizer, [1, 3]),
        schedules.LambdaLR(optimizer, lambda epoch: 0.9**epoch),
        schedules.OneCycleLR(optimizer, 0.1, total_steps=9),
        schedules.CyclicLR(optimizer, 0.01, 0.1, cycle_momentum=False),
        schedules.CosineAnnealingWarmRestarts(optimizer, 3),
        schedules.ReduceLROnPlateau(optimizer),
        schedules.SequentialLR(
            optimizer, [schedules.LinearLR(optimizer), schedules.ExponentialLR(optimizer, 0.5)], [2]
        ),
    ]
    file = tmp_path / "x.pt"
    save_checkpoint(file, **{f"s{i}": s for i, s in enumerate(made)})
    load_checkpoint(file, **{f"s{i}": s for i, s in enumerate(made)})


KILLED = """
import sys
import weft as torch
from weft.utils.checkpointing import save_checkpoint
model = torch.nn.Linear(400, 400)
print("ready", flush=True)
step = 0
while True:
    step += 1
    torch.nn.init.constant_(model.weight, step)
    save_checkpoint(sys.argv[1], model=model, step=step)
"""


def test_killed_while_saving_the_checkpoint_is_whole(tmp_path: Path) -> None:
    import time

    file = tmp_path / "last.pt"
    last = 0
    for delay in (0.02, 0.05, 0.09):
        child = subprocess.Popen(
            [sys.executable, "-c", KILLED, str(file)], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None and child.stdout.readline() == "ready\n"
        time.sleep(delay)
        child.kill()
        child.wait()
        child.stdout.close()
        if file.exists():
            model = torch.nn.Linear(400, 400)
            last = load_checkpoint(file, model=model)["step"]
            assert model.weight.min().item() == model.weight.max().item() == last
    save_checkpoint(file, model=torch.nn.Linear(1, 1), step=1)  # removes what a kill may have left
    assert last and [p.name for p in tmp_path.iterdir()] == ["last.pt"]
