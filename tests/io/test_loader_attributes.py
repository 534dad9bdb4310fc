"""What iterating asks of a loader: subclasses and stand-ins of other libraries have no more."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

import weft

torch = pytest.importorskip("torch")

LOADERS: dict[str, dict[str, Any]] = {
    "in this process": {},
    "shuffled": {"shuffle": True},
    "a stream": {"stream": True},
    "in workers": {"num_workers": 1},
    "a stream in workers": {"stream": True, "num_workers": 1},
    "in workers that stay": {"num_workers": 1, "persistent_workers": True},
}


def stream_of(library: Any) -> Any:
    class Stream(library.utils.data.IterableDataset):
        def __iter__(self):
            return iter(range(6))

    return Stream()


def watched(library: Any, stream: bool = False, **settings: Any) -> tuple[list[Any], ...]:
    """The names that a loader is asked for when an iterator is made, as it runs, and again."""
    seen: list[str] = []

    class Watched(library.utils.data.DataLoader):
        def __getattribute__(self, name):
            seen.append(name)
            return super().__getattribute__(name)

        def __setattr__(self, name, value):
            seen.append(f"{name}=")
            super().__setattr__(name, value)

    data = stream_of(library) if stream else list(range(6))
    loader = Watched(data, batch_size=2, **settings)
    found, batches = [], None
    for step in (iter, list, len, iter, list):
        seen.clear()
        if step is iter:
            batches = iter(loader)
        elif step is list:
            found.append([batch.tolist() for batch in batches])
        elif not stream:
            len(batches)
        found.append(set(seen))
    return tuple(found)


@pytest.mark.parametrize("case", LOADERS)
def test_a_loader_is_asked_for_what_pytorch_asks_for(case: str) -> None:
    settings = LOADERS[case]
    for library in (torch, weft):
        library.manual_seed(0)
    for ours, theirs in zip(watched(weft, **settings), watched(torch, **settings), strict=True):
        if isinstance(theirs, set):
            # There is no accelerator that memory could be pinned for.
            assert ours == theirs - {"pin_memory"}
        else:
            assert sorted(n for batch in ours for n in batch) == list(range(6))


def test_loaders_have_the_attributes_of_pytorchs() -> None:
    ours, theirs = (vars(t.utils.data.DataLoader([1, 2])) for t in (weft, torch))
    assert set(ours) == set(theirs)


@pytest.mark.parametrize("workers", (0, 1))
def test_a_stand_in_with_what_pytorch_reads_serves(workers: int) -> None:
    for library in (torch, weft):
        data = library.utils.data

        class Loader:
            dataset, _dataset_kind, num_workers = list(range(6)), 0, workers
            _index_sampler = data.BatchSampler(data.SequentialSampler(range(6)), 4, False)
            _IterableDataset_len_called = generator = multiprocessing_context = None
            _auto_collation, drop_last, pin_memory, persistent_workers = True, False, False, False
            timeout, prefetch_factor, worker_init_fn, in_order = 0, 2, None, True
            collate_fn = staticmethod(list)

        module = data.dataloader
        kinds = module._SingleProcessDataLoaderIter, module._MultiProcessingDataLoaderIter
        iterator = kinds[workers](Loader())
        assert list(iterator) == [[0, 1, 2, 3], [4, 5]]
        assert (iterator._num_yielded, iterator._num_workers, len(iterator)) == (2, workers, 2)


def test_a_subclass_without_the_constructor_says_what_it_lacks() -> None:
    for library in (torch, weft):

        class Bare(library.utils.data.DataLoader):
            def __init__(self):
                self.dataset = [1]

        with pytest.raises(AttributeError, match="persistent_workers"):
            iter(Bare())


def test_an_iterator_of_ones_own_is_reset_where_workers_stay() -> None:
    for library in (torch, weft):
        module = library.utils.data.dataloader

        class Own(module._BaseDataLoaderIter):
            resets: ClassVar[list[bool]] = []

            def _reset(self, loader, first_iter=False):
                super()._reset(loader, first_iter)
                self.resets.append(first_iter)

            def _next_data(self):
                return self._next_index()

        class Loader(library.utils.data.DataLoader):
            def _get_iterator(self):
                return Own(self)

        loader = Loader(list(range(3)), batch_size=2, num_workers=1, persistent_workers=True)
        assert [list(loader), list(loader)] == [[[0, 1], [2]], [[0, 1], [2]]]
        assert Own.resets == [False]


def test_the_context_of_workers_is_checked_when_it_is_set() -> None:
    for library in (torch, weft):
        loader = library.utils.data.DataLoader([1, 2])
        with pytest.raises(ValueError, match="num_workers"):
            loader.multiprocessing_context = "fork"
        loader = library.utils.data.DataLoader([1, 2], num_workers=1)
        loader.multiprocessing_context = "spawn"
        assert loader.multiprocessing_context.get_start_method() == "spawn"
