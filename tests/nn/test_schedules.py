"""Learning rate schedules and weight averaging take the same course as PyTorch's."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import numpy as np
import pytest
from test_optim import converted, one

import weft
from weft.optim import lr_scheduler as schedules

torch = pytest.importorskip("torch", reason="parity tests need torch==2.13.0")


def half(epoch: int) -> float:
    return 0.5 ** (epoch // 3)


def rate(epoch: int) -> float:
    return 0.9 if epoch % 2 else 0.95


def metric(step: int) -> float:
    return [5.0, 4.0, 4.5, 4.4, 4.3, 3.0, 3.0, 3.0, 3.0, 2.999][step % 10]


SCHEDULES: dict[str, Any] = {
    "LambdaLR": lambda L, o: L.LambdaLR(o, half),
    "LambdaLR-list": lambda L, o: L.LambdaLR(o, [half, rate]),
    "MultiplicativeLR": lambda L, o: L.MultiplicativeLR(o, rate),
    "StepLR": lambda L, o: L.StepLR(o, 4, 0.7),
    "MultiStepLR": lambda L, o: L.MultiStepLR(o, [3, 7, 7, 20], 0.5),
    "ConstantLR": lambda L, o: L.ConstantLR(o, 0.4, 6),
    "LinearLR": lambda L, o: L.LinearLR(o, 0.2, 0.9, 8),
    "ExponentialLR": lambda L, o: L.ExponentialLR(o, 0.9),
    "CosineAnnealingLR": lambda L, o: L.CosineAnnealingLR(o, 7, 0.01),
    "WarmRestarts": lambda L, o: L.CosineAnnealingWarmRestarts(o, 4, 2, 0.01),
    "WarmRestarts-1": lambda L, o: L.CosineAnnealingWarmRestarts(o, 5),
    "PolynomialLR": lambda L, o: L.PolynomialLR(o, 12, 2.0),
    "CyclicLR": lambda L, o: L.CyclicLR(o, 0.01, 0.1, 4, 6),
    "CyclicLR-2": lambda L, o: L.CyclicLR(o, 0.01, [0.1, 0.2], 3, mode="triangular2"),
    "CyclicLR-exp": lambda L, o: L.CyclicLR(o, 0.01, 0.1, 3, mode="exp_range", gamma=0.95),
    "CyclicLR-custom": lambda L, o: L.CyclicLR(
        o, 0.01, 0.1, 3, scale_fn=lambda x: 1 / x, scale_mode="cycle", cycle_momentum=False
    ),
    "OneCycleLR": lambda L, o: L.OneCycleLR(o, 0.3, total_steps=40),
    "OneCycleLR-3": lambda L, o: L.OneCycleLR(
        o, [0.3, 0.1], epochs=8, steps_per_epoch=5, anneal_strategy="linear", three_phase=True
    ),
    "SequentialLR": lambda L, o: L.SequentialLR(
        o, [L.LinearLR(o, 0.1, total_iters=4), L.CosineAnnealingLR(o, 10), L.StepLR(o, 2)], [5, 15]
    ),
    "ChainedScheduler": lambda L, o: L.ChainedScheduler(
        [L.ConstantLR(o, 0.5, 4), L.ExponentialLR(o, 0.9)]
    ),
    "ReduceLROnPlateau": lambda L, o: L.ReduceLROnPlateau(
        o, factor=0.5, patience=2, cooldown=1, min_lr=[0.01, 0.02]
    ),
    "ReduceLROnPlateau-max": lambda L, o: L.ReduceLROnPlateau(
        o, "max", patience=1, threshold=0.1, threshold_mode="abs"
    ),
}


def optimizer_for(T: Any, kind: str = "SGD") -> Any:
    groups = [{"params": [one(T)]}, {"params": [one(T)], "lr": 0.2}]
    if kind == "SGD":
        return T.optim.SGD(groups, lr=0.1, momentum=0.9)
    return T.optim.Adam(groups, lr=0.1)


def settings(optimizer: Any) -> list[float]:
    """The numbers that schedules move, one after another."""
    found: list[float] = []
    for group in optimizer.param_groups:
        found += [group["lr"], *([group["momentum"]] if "momentum" in group else group["betas"])]
    return found


def advance(scheduler: Any, optimizer: Any, step: int) -> None:
    optimizer.step()
    plateau = "Plateau" in type(scheduler).__name__
    scheduler.step(metric(step)) if plateau else scheduler.step()


@pytest.mark.parametrize("kind", ["SGD", "Adam"])
@pytest.mark.parametrize("name", SCHEDULES)
def test_same_rates(name: str, kind: str) -> None:
    mine, other = optimizer_for(weft, kind), optimizer_for(torch, kind)
    first = SCHEDULES[name](schedules, mine)
    second = SCHEDULES[name](torch.optim.lr_scheduler, other)
    assert settings(mine) == settings(other)
    for step in range(30):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            advance(first, mine, step)
            advance(second, other, step)
        assert settings(mine) == pytest.approx(settings(other), rel=1e-12)
        assert first.get_last_lr() == pytest.approx(second.get_last_lr(), rel=1e-12)
    ignored = {"_scale_fn_ref"}
    assert first.state_dict().keys() - ignored == second.state_dict().keys() - ignored


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_resume(name: str) -> None:
    """Ours goes on from PyTorch's state after 11 steps, and the other way round."""
    mine, other = optimizer_for(weft), optimizer_for(torch)
    first = SCHEDULES[name](schedules, mine)
    second = SCHEDULES[name](torch.optim.lr_scheduler, other)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for step in range(11):
            advance(first, mine, step)
            advance(second, other, step)
        again, again_other = optimizer_for(weft), optimizer_for(torch)
        third = SCHEDULES[name](schedules, again)
        fourth = SCHEDULES[name](torch.optim.lr_scheduler, again_other)
        third.load_state_dict(copy.deepcopy(second.state_dict()))
        fourth.load_state_dict(copy.deepcopy(first.state_dict()))
        again.load_state_dict(converted(other.state_dict(), weft))
        again_other.load_state_dict(converted(mine.state_dict(), torch))
        for step in range(11, 30):
            for scheduler, optimizer in (
                *((first, mine), (second, other), (third, again), (fourth, again_other)),
            ):
                advance(scheduler, optimizer, step)
            expected = pytest.approx(second.get_last_lr(), rel=1e-12)
            assert first.get_last_lr() == expected
            assert third.get_last_lr() == expected
            assert fourth.get_last_lr() == expected


@pytest.mark.parametrize(
    "name",
    [
        "StepLR",
        "MultiStepLR",
        "ConstantLR",
        "LinearLR",
        "ExponentialLR",
        "PolynomialLR",
        "CosineAnnealingLR",
        "WarmRestarts",
        "LambdaLR",
    ],
)
def test_rates_of_a_given_epoch(name: str) -> None:
    mine, other = optimizer_for(weft), optimizer_for(torch)
    first = SCHEDULES[name](schedules, mine)
    second = SCHEDULES[name](torch.optim.lr_scheduler, other)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for epoch in (3, 11, 5, 0):
            first.step(epoch)
            second.step(epoch)
            assert first.get_last_lr() == pytest.approx(second.get_last_lr(), rel=1e-12)


def test_last_epoch_is_resumed() -> None:
    for make in (
        lambda L, o: L.StepLR(o, 4, last_epoch=6),
        lambda L, o: L.CosineAnnealingLR(o, 9, last_epoch=3),
        lambda L, o: L.ExponentialLR(o, 0.5, last_epoch=3),
        lambda L, o: L.LinearLR(o, last_epoch=2),
    ):
        rates = []
        for T, L in ((weft, schedules), (torch, torch.optim.lr_scheduler)):
            optimizer = optimizer_for(T)
            with pytest.raises(KeyError, match="initial_lr"):
                make(L, optimizer)
            for group in optimizer.param_groups:
                group["initial_lr"] = 0.4
            scheduler = make(L, optimizer)
            for step in range(4):
                advance(scheduler, optimizer, step)
            rates.append(scheduler.get_last_lr())
        assert rates[0] == pytest.approx(rates[1], rel=1e-12)


def test_warnings_about_order() -> None:
    optimizer = optimizer_for(weft)
    scheduler = schedules.StepLR(optimizer, 2)
    with pytest.warns(UserWarning, match=r"before `optimizer.step\(\)`"):
        scheduler.step()
    with pytest.warns(UserWarning, match="get_last_lr"):
        scheduler.get_lr()
    with pytest.warns(UserWarning, match="epoch parameter"):
        scheduler.step(4)
    optimizer = optimizer_for(weft)
    scheduler = schedules.StepLR(optimizer, 2)
    optimizer.step = lambda: None
    with pytest.warns(UserWarning, match="overridden after"):
        scheduler.step()
    optimizer = optimizer_for(weft)
    scheduler = schedules.StepLR(optimizer, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer.step()
        scheduler.step()


def test_bad_schedules() -> None:
    cases = [
        lambda L, o: L.StepLR("no optimizer", 2),
        lambda L, o: L.LambdaLR(o, [half]),
        lambda L, o: L.MultiplicativeLR(o, 3),
        lambda L, o: L.ConstantLR(o, 2.0),
        lambda L, o: L.LinearLR(o, 0.0),
        lambda L, o: L.CosineAnnealingWarmRestarts(o, -1),
        lambda L, o: L.SequentialLR(o, [], []),
        lambda L, o: L.SequentialLR(o, [L.StepLR(o, 2)], [3]),
        lambda L, o: L.ChainedScheduler([L.ReduceLROnPlateau(o)]),
        lambda L, o: L.ReduceLROnPlateau(o, factor=1.0),
        lambda L, o: L.ReduceLROnPlateau(o, "other"),
        lambda L, o: L.OneCycleLR(o, 0.1),
        lambda L, o: L.OneCycleLR(o, 0.1, total_steps=0),
        lambda L, o: L.OneCycleLR(o, [0.1], total_steps=3),
        lambda L, o: L.CyclicLR(o, 0.1, 0.2, mode="other"),
    ]
    for case in cases:
        with pytest.raises(Exception) as theirs:
            case(torch.optim.lr_scheduler, optimizer_for(torch))
        with pytest.raises(type(theirs.value)) as ours:
            case(schedules, optimizer_for(weft))
        assert str(ours.value).startswith(str(theirs.value))


# --- averaging ---


def network(T: Any) -> Any:
    model = T.nn.Sequential(T.nn.Linear(3, 4), T.nn.BatchNorm1d(4), T.nn.Linear(4, 2))
    rng = np.random.default_rng(1)
    with T.no_grad():
        for p in model.parameters():
            p.copy_(T.from_numpy(rng.normal(size=tuple(p.shape)).astype(np.float32)))
    return model


AVERAGES: dict[str, Any] = {
    "swa": lambda S: {},
    "swa-one": lambda S: {"avg_fn": S.get_swa_avg_fn()},
    "swa-many": lambda S: {"multi_avg_fn": S.get_swa_multi_avg_fn()},
    "ema-one": lambda S: {"avg_fn": S.get_ema_avg_fn(0.9)},
    "ema-many": lambda S: {"multi_avg_fn": S.get_ema_multi_avg_fn(0.9), "use_buffers": True},
}


@pytest.mark.parametrize("kind", AVERAGES)
def test_averaged_model(kind: str) -> None:
    results = []
    data = np.random.default_rng(2).normal(size=(4, 8, 3)).astype(np.float32)
    for T in (weft, torch):
        S = T.optim.swa_utils
        model = network(T)
        average = S.AveragedModel(model, **AVERAGES[kind](S))
        optimizer = T.optim.SGD(model.parameters(), lr=0.1)
        scheduler = S.SWALR(optimizer, swa_lr=0.05, anneal_epochs=3)
        rates = []
        for batch in data:
            optimizer.zero_grad()
            model(T.from_numpy(batch)).square().mean().backward()
            optimizer.step()
            average.update_parameters(model)
            scheduler.step()
            rates += scheduler.get_last_lr()
        S.update_bn([T.from_numpy(batch) for batch in data], average)
        average.eval()
        out = average(T.from_numpy(data[0])).detach().numpy()
        results.append((rates, out, int(average.n_averaged), list(average.state_dict())))
    assert results[0][0] == pytest.approx(results[1][0], rel=1e-12)
    np.testing.assert_allclose(results[0][1], results[1][1], rtol=2e-5, atol=2e-5)
    assert results[0][2:] == results[1][2:]


@pytest.mark.parametrize("strategy", ["cos", "linear"])
@pytest.mark.parametrize("epochs", [0, 5])
def test_swalr(strategy: str, epochs: int) -> None:
    rates = []
    for T in (weft, torch):
        optimizer = optimizer_for(T)
        S = T.optim.swa_utils
        scheduler = S.SWALR(optimizer, [0.01, 0.02], epochs, strategy)
        found = []
        for step in range(10):
            if step == 4:
                saved = scheduler.state_dict()
                scheduler = S.SWALR(optimizer, [0.01, 0.02], epochs, strategy)
                scheduler.load_state_dict(saved)
            advance(scheduler, optimizer, step)
            found += scheduler.get_last_lr()
        rates.append((found, sorted(scheduler.state_dict())))
    assert rates[0][0] == pytest.approx(rates[1][0], rel=1e-12)
    assert rates[0][1] == rates[1][1]


def test_bad_averages() -> None:
    S = weft.optim.swa_utils
    for make in (S.get_ema_avg_fn, S.get_ema_multi_avg_fn):
        with pytest.raises(ValueError, match="Invalid decay value"):
            make(1.5)
    with pytest.raises(AssertionError, match="Only one of"):
        S.AveragedModel(network(weft), avg_fn=S.get_swa_avg_fn(), multi_avg_fn=min)
