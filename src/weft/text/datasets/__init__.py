"""Datasets read from local files; nothing is downloaded.

``AG_NEWS(root, split=…)`` and its like give (label, text) pairs as torchtext 0.9 and later do;
``IMDB.splits(TEXT, LABEL)`` and its like make datasets of examples as torchtext 0.6 does.
"""

from weft.text.datasets.language_modeling import (
    LanguageModelingDataset,
    PennTreebank,
    WikiText2,
    WikiText103,
)
from weft.text.datasets.reviews import IMDB
from weft.text.datasets.sequence_tagging import SequenceTaggingDataset
from weft.text.datasets.text_classification import (
    AG_NEWS,
    DATASETS,
    AmazonReviewFull,
    AmazonReviewPolarity,
    DBpedia,
    SogouNews,
    TextClassificationDataset,
    YahooAnswers,
    YelpReviewFull,
    YelpReviewPolarity,
)
from weft.text.datasets.translation import Multi30k, TranslationDataset

__all__ = [
    "AG_NEWS",
    "DATASETS",
    "IMDB",
    "AmazonReviewFull",
    "AmazonReviewPolarity",
    "DBpedia",
    "LanguageModelingDataset",
    "Multi30k",
    "PennTreebank",
    "SequenceTaggingDataset",
    "SogouNews",
    "TextClassificationDataset",
    "TranslationDataset",
    "WikiText2",
    "WikiText103",
    "YahooAnswers",
    "YelpReviewFull",
    "YelpReviewPolarity",
]
