"""Insides of PyTorch that libraries inherit from or call in one process, beside torch."""

from __future__ import annotations

import warnings

import pytest

import weft
from weft.compat.stand_ins import checkpoint

torch = pytest.importorskip("torch")


# --- iterators of loaders --------------------------------------------------------------


def _iterator(t):
    """An iterator as torchdata's stateful one is written, from the base class alone."""
    parts = t.utils.data.dataloader

    class Iterator(parts._BaseDataLoaderIter):
        def __init__(self, loader):
            super().__init__(loader)
            assert self._timeout == 0 and self._num_workers == 0 and not self._pin_memory
            self._fetcher = parts._DatasetKind.create_fetcher(
                self._dataset_kind,
                self._dataset,
                self._auto_collation,
                self._collate_fn,
                self._drop_last,
            )

        def _next_data(self):
            return self._fetcher.fetch(self._next_index())

    return Iterator


def _epochs(t) -> list:
    t.manual_seed(3)
    loader = t.utils.data.DataLoader(list(range(10)), batch_size=4, shuffle=True)
    iterator = _iterator(t)(loader)
    first = [batch.tolist() for batch in iterator]
    seen = iterator._num_yielded, len(iterator), iterator._base_seed, iterator._profile_name
    iterator._reset(loader)
    again = iterator._num_yielded, next(iterator).tolist(), iterator._num_yielded
    unlike = {"_pg", "_pin_memory_device", "_shared_seed", "_world_size", "_rank"}
    names = {name for name in vars(iterator) if not name.startswith("__")} - unlike
    return [first, seen, again, sorted(names)]


def test_an_iterator_that_inherits_the_base_goes_as_with_torch() -> None:
    assert _epochs(weft) == _epochs(torch)


def test_the_base_alone_makes_no_batches() -> None:
    base = weft.utils.data.dataloader._BaseDataLoaderIter(weft.utils.data.DataLoader([1, 2]))
    with pytest.raises(NotImplementedError):
        next(base)
    assert iter(base) is base


def test_a_stream_that_is_longer_than_it_said_is_warned_of() -> None:
    words = []
    for t in (torch, weft):

        class Stream(t.utils.data.IterableDataset):
            def __iter__(self):
                return iter(range(3))

            def __len__(self):
                return 2

        loader = t.utils.data.DataLoader(Stream(), batch_size=None)
        assert len(loader) == 2
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert len(list(_iterator(t)(loader))) == 3
        words.append([str(w.message).count("was reported to be 2") for w in caught])
    assert words[0] == words[1] == [1]


# --- states of models ------------------------------------------------------------------


def _states():
    torch_part = pytest.importorskip("torch.distributed.checkpoint.state_dict")
    return (torch, torch_part), (weft, checkpoint)


def _model(t):
    model = t.nn.Sequential(t.nn.Linear(2, 3), t.nn.Sequential(t.nn.Linear(3, 1)))
    model[0].weight.requires_grad_(False)
    return model


@pytest.mark.parametrize(
    "options",
    [{}, {"full_state_dict": True, "cpu_offload": True}, {"ignore_frozen_params": True}],
)
def test_the_state_of_a_model_has_torchs_names(options) -> None:
    names = []
    for t, part in _states():
        state = part.get_model_state_dict(_model(t), options=part.StateDictOptions(**options))
        names.append(list(state))
    assert names[0] == names[1]


def test_a_state_that_is_loaded_arrives_and_says_what_is_missing() -> None:
    results = []
    for t, part in _states():
        model = _model(t)
        state = {"0.bias": t.tensor([1.0, 2.0, 3.0]), "2.bias": t.ones(1)}
        with pytest.raises(RuntimeError, match="Missing key"):
            part.set_model_state_dict(model, dict(state))
        loose = part.StateDictOptions(strict=False)
        keys = part.set_model_state_dict(model, dict(state), options=loose)
        empty = part.set_model_state_dict(model, {}, options=loose)
        found = sorted(keys.missing_keys), keys.unexpected_keys, tuple(empty)
        results.append((*found, model[0].bias.tolist()))
    assert results[0] == results[1]


def test_a_full_state_takes_the_place_of_parameters_without_memory() -> None:
    with weft.device("meta"):
        model = _model(weft)
    full = {key: weft.ones(value.shape) for key, value in model.state_dict().items()}
    options = checkpoint.StateDictOptions(full_state_dict=True)
    assert not any(checkpoint.set_model_state_dict(model, full, options=options))
    assert model[1][0].weight.tolist() == [[1.0, 1.0, 1.0]]


def test_parts_of_a_model_and_what_needs_other_processes() -> None:
    model = _model(weft)
    assert list(checkpoint.get_model_state_dict(model, submodules=[model[1]])) == [
        "1.0.weight",
        "1.0.bias",
    ]
    short = checkpoint.StateDictOptions(keep_submodule_prefixes=False)
    found = checkpoint.get_model_state_dict(model, submodules=[model[1]], options=short)
    assert list(found) == ["0.weight", "0.bias"]
    sent = checkpoint.StateDictOptions(broadcast_from_rank0=True)
    with pytest.raises(RuntimeError, match="state_dict is empty"):
        checkpoint.set_model_state_dict(model, {})
    with pytest.raises(RuntimeError, match="one process"):
        checkpoint.set_model_state_dict(model, model.state_dict(), options=sent)
