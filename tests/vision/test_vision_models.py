"""Models: torchvision's parameter names, shapes, initial values and results; weights by name."""

from __future__ import annotations

import hashlib
import math
import pathlib
from typing import Any

import pytest
import vision_numbers as table

import weft
from weft import hub, nn
from weft.vision import models
from weft.vision.models import _api

NUMBERS = table.numbers()


def test_the_numbers_name_their_source() -> None:
    assert NUMBERS["source"].startswith("torchvision 0.28.0, torch 2.13.0")
    assert len(NUMBERS["models"]) >= 90


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parameters are made and not drawn: structure needs no values."""
    for name in vars(nn.init):
        if name.endswith("_") and not name.startswith("_"):
            monkeypatch.setattr(nn.init, name, lambda tensor, *a, **k: tensor)
    monkeypatch.setattr(weft.Tensor, "normal_", lambda self, *a, **k: self)
    monkeypatch.setattr(weft.Tensor, "uniform_", lambda self, *a, **k: self)


FAMILIES = sorted({name[:5] for name in NUMBERS["models"]})


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.usefixtures("undrawn")
def test_every_model_has_torchvisions_names_and_shapes(family: str) -> None:
    for name, expected in NUMBERS["models"].items():
        if name[:5] == family:
            assert table.structure(table.built(weft, models, name)) == expected, name


@pytest.mark.parametrize("name", table.DRAWN)
def test_the_same_seed_draws_the_same_weights(name: str) -> None:
    found = table.values(table.built(weft, models, name))
    assert found == pytest.approx(NUMBERS["values"][name], rel=2e-6, abs=1e-3)


@pytest.mark.deep
@pytest.mark.parametrize("name", sorted(NUMBERS["values"]))
def test_the_same_seed_draws_the_same_weights_in_all_models(name: str) -> None:
    found = table.values(table.built(weft, models, name))
    assert found == pytest.approx(NUMBERS["values"][name], rel=2e-6, abs=1e-3)


QUICK = ("squeezenet1_1", "shufflenet_v2_x0_5", "mobilenet_v3_small", "resnet18", "googlenet")


def _check_result(name: str, side: int) -> None:
    found = table.result(weft, table.built(weft, models, name), side)
    assert found == pytest.approx(NUMBERS["results"][name], rel=2e-3, abs=2e-4)


@pytest.mark.parametrize("name", QUICK)
def test_models_give_torchvisions_results(name: str) -> None:
    _check_result(name, table.RUN[name])


@pytest.mark.deep
@pytest.mark.parametrize("name", sorted(set(table.RUN) - set(QUICK)))
def test_larger_models_give_torchvisions_results(name: str) -> None:
    _check_result(name, table.RUN[name])


def test_segmentation_gives_torchvisions_results() -> None:
    _check_result(table.SEGMENT[0], 64)


def test_a_small_vision_transformer_gives_torchvisions_results() -> None:
    found = table.result(weft, table.small_vit(weft, models), 32)
    assert found == pytest.approx(NUMBERS["results"]["small_vit"], rel=1e-4, abs=1e-5)


def test_a_detector_has_torchvisions_losses() -> None:
    found = table.trained(weft, models)
    assert found == pytest.approx(NUMBERS["losses"], rel=2e-3)


@pytest.mark.parametrize("kind", table.TINY)
def test_masks_keypoints_and_places_are_torchvisions(kind: str) -> None:
    found = table.tiny_results(weft, models.detection, kind)
    for ours, theirs in zip(found, NUMBERS["tiny"][kind], strict=True):
        # Labels of objectness are float32, and so is its loss.
        assert ours == pytest.approx(theirs, rel=3e-6, abs=1e-9)


def test_masks_are_pasted_where_their_boxes_are() -> None:
    paste = models.detection.roi_heads.paste_masks_in_image
    boxes = weft.tensor([[2.0, 3, 7, 9], [-4, -4, 2, 2]])
    found = paste(weft.ones(2, 1, 28, 28), boxes, (12, 10))
    assert found.shape == (2, 1, 12, 10)
    assert found[0, 0, 4:8, 3:6].min() > 0.9 and found[0, 0, :2].sum() == 0
    assert found[1, 0, 3:].sum() == 0 and found[1, 0, 0, 0] > 0.9
    assert paste(weft.ones(0, 1, 28, 28), weft.zeros(0, 4), (5, 6)).shape == (0, 1, 5, 6)


def test_the_weights_of_detectors_are_named_beside_them() -> None:
    kind = models.detection.MaskRCNN_ResNet50_FPN_Weights
    assert kind.DEFAULT is kind.COCO_V1
    assert models.segmentation.FCN_ResNet50_Weights.DEFAULT.meta["num_classes"] == 21
    with pytest.raises(AttributeError, match="Nothing_Weights"):
        models.detection.Nothing_Weights  # noqa: B018


# --- by name ---------------------------------------------------------------------------------


def test_models_are_found_by_name_and_pattern() -> None:
    assert models.list_models(include="vgg1?") == ["vgg11", "vgg13", "vgg16", "vgg19"]
    assert "resnet18" not in models.list_models(exclude="resnet*")
    found = models.list_models(module=models.segmentation)
    assert "fcn_resnet50" in found and "resnet18" not in found
    assert models.get_model_builder("SqueezeNet1_1") is models.squeezenet1_1
    with pytest.raises(ValueError, match="Unknown model nothing"):
        models.get_model("nothing")


def test_a_model_of_ones_own_is_registered_once() -> None:
    def tiny_of_mine(width: int = 2) -> nn.Module:
        return nn.Linear(width, width)

    models.register_model()(tiny_of_mine)
    try:
        assert models.get_model("tiny_of_mine", width=3).in_features == 3
        with pytest.raises(ValueError, match="already registered"):
            models.register_model()(tiny_of_mine)
    finally:
        del _api._MODELS["tiny_of_mine"], _api._WEIGHTS["tiny_of_mine"]


def test_weights_have_names() -> None:
    kind = models.ResNet50_Weights
    assert kind.DEFAULT is kind.IMAGENET1K_V2 and kind.IMAGENET1K_V1 is not kind.DEFAULT
    assert models.get_weight("ResNet50_Weights.IMAGENET1K_V1") is kind.IMAGENET1K_V1
    assert models.get_model_weights("resnet50") is kind
    assert kind.verify("IMAGENET1K_V1") is kind.IMAGENET1K_V1
    assert kind.DEFAULT.url.endswith("resnet50-11ad3fa6.pth")
    assert kind.DEFAULT.meta["num_params"] == 25557032
    assert models.resnet.ResNet50_Weights is kind
    prepare = kind.DEFAULT.transforms()
    assert (prepare.crop_size, prepare.resize_size) == ([224], [232])
    assert prepare(weft.zeros(3, 300, 260, dtype=weft.uint8)).shape == (3, 224, 224)
    with pytest.raises(KeyError, match="has IMAGENET1K_V1"):
        kind.verify("NOTHING")
    with pytest.raises(TypeError, match="expected ResNet50_Weights"):
        kind.verify(models.ResNet18_Weights.DEFAULT)


@pytest.fixture
def cached(tmp_path: pathlib.Path) -> Any:
    before = hub._folder
    hub.set_dir(tmp_path)
    (tmp_path / "checkpoints").mkdir()
    yield tmp_path / "checkpoints"
    hub._folder = before


def test_weights_load_from_the_cache_if_their_hash_is_right(
    cached: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weft.manual_seed(5)
    net = models.squeezenet1_1()
    path = cached / "made.pth"
    weft.save(net.state_dict(), path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:8]
    path = path.rename(cached / f"squeezenet1_1-{digest}.pth")
    member = models.SqueezeNet1_1_Weights.DEFAULT
    made = _api.Weights(f"http://127.0.0.1:9/{path.name}", member.transforms, member.meta)
    monkeypatch.setattr(member, "_value_", made)
    loaded = models.squeezenet1_1(weights="DEFAULT")
    state = net.state_dict()
    assert all(weft.equal(v, state[k]) for k, v in loaded.state_dict().items())
    with pytest.raises(ValueError, match="'num_classes' expected value 1000 but got 10"):
        models.squeezenet1_1(weights="DEFAULT", num_classes=10)
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(RuntimeError, match="damaged or another one"):
        models.squeezenet1_1(weights="DEFAULT")


def test_pretrained_is_still_understood() -> None:
    with pytest.warns(UserWarning, match="'pretrained' is deprecated"):
        assert isinstance(models.squeezenet1_1(pretrained=False), models.SqueezeNet)
    assert isinstance(models.mobilenet_v2(None, True, num_classes=3), models.MobileNetV2)


# --- training --------------------------------------------------------------------------------


def test_further_classifiers_are_for_training_only() -> None:
    net = models.googlenet(num_classes=5, init_weights=False)
    out = net(table.picture(weft, 64, 2))
    assert out._fields == ("logits", "aux_logits2", "aux_logits1")
    assert [part.shape for part in out] == [(2, 5)] * 3
    assert net.eval()(table.picture(weft, 64, 2)).shape == (2, 5)
    with pytest.warns(FutureWarning, match="init_weights=True"):
        models.googlenet(num_classes=2, aux_logits=False)


def test_the_shortest_networks_learn() -> None:
    weft.manual_seed(0)
    net = models.lenet(num_classes=2)
    x = weft.randn(16, 1, 28, 28)
    x[8:, :, :14] += 2
    y = weft.arange(16) // 8
    optimizer = weft.optim.SGD(net.parameters(), 0.1)
    for _ in range(20):
        loss = nn.functional.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.1
    assert models.LeNet(size=32, in_channels=3)(weft.zeros(1, 3, 32, 32)).shape == (1, 10)


def test_a_unet_keeps_any_size() -> None:
    net = models.segmentation.unet(num_classes=4, in_channels=2, base=4, depth=3)
    for height, width in ((16, 24), (17, 9), (8, 8)):
        out = net(weft.randn(2, 2, height, width))
        assert out.shape == (2, 4, height, width)
    out.sum().backward()
    assert all(p.grad is not None and math.isfinite(p.grad.sum()) for p in net.parameters())


def test_detectors_say_what_is_wrong_with_targets() -> None:
    net = models.detection.ssd300_vgg16(num_classes=2)
    image = [weft.rand(3, 32, 32)]
    with pytest.raises(ValueError, match="targets should not be none"):
        net(image)
    bad = [{"boxes": weft.tensor([[5.0, 5, 5, 9]]), "labels": weft.tensor([1])}]
    with pytest.raises(ValueError, match="positive height and width"):
        net(image, bad)
    with pytest.raises(TypeError, match="floating type"):
        net.eval()([weft.zeros(3, 9, 9, dtype=weft.uint8)])
