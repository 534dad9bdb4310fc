"""Fields, examples, datasets and iterators of torchtext 0.6, and the helpers of all releases."""

from weft.text.data.batch import Batch
from weft.text.data.dataset import Dataset, TabularDataset
from weft.text.data.example import Example
from weft.text.data.field import Field, LabelField, RawField, ReversibleField
from weft.text.data.functional import (
    custom_replace,
    numericalize_tokens_from_iterator,
    simple_space_split,
    to_map_style_dataset,
)
from weft.text.data.iterator import BPTTIterator, BucketIterator, Iterator, batch, pool
from weft.text.data.loading import BucketBatchSampler, PadCollate
from weft.text.data.metrics import bleu_score
from weft.text.data.nested import NestedField
from weft.text.data.pipeline import Pipeline
from weft.text.data.utils import get_tokenizer, interleave_keys, ngrams_iterator

__all__ = [
    "BPTTIterator",
    "Batch",
    "BucketBatchSampler",
    "BucketIterator",
    "Dataset",
    "Example",
    "Field",
    "Iterator",
    "LabelField",
    "NestedField",
    "PadCollate",
    "Pipeline",
    "RawField",
    "ReversibleField",
    "TabularDataset",
    "batch",
    "bleu_score",
    "custom_replace",
    "get_tokenizer",
    "interleave_keys",
    "ngrams_iterator",
    "numericalize_tokens_from_iterator",
    "pool",
    "simple_space_split",
    "to_map_style_dataset",
]
