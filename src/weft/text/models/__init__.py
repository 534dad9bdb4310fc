"""Models of text: classifiers, sequence to sequence, GPT-2 and BERT."""

from weft.text.models.bert import (
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    BertModel,
)
from weft.text.models.classifiers import GRUClassifier, LSTMClassifier, TextCNN
from weft.text.models.generation import beam_search, filter_logits, greedy_search, sample_tokens
from weft.text.models.gpt2 import GPT2Config, GPT2LMHeadModel, GPT2Model
from weft.text.models.seq2seq import AttentionSeq2Seq, BahdanauAttention, LuongAttention
from weft.text.models.transformer import PositionalEncoding, Seq2SeqTransformer

__all__ = [
    "AttentionSeq2Seq",
    "BahdanauAttention",
    "BertConfig",
    "BertForMaskedLM",
    "BertForSequenceClassification",
    "BertModel",
    "GPT2Config",
    "GPT2LMHeadModel",
    "GPT2Model",
    "GRUClassifier",
    "LSTMClassifier",
    "LuongAttention",
    "PositionalEncoding",
    "Seq2SeqTransformer",
    "TextCNN",
    "beam_search",
    "filter_logits",
    "greedy_search",
    "sample_tokens",
]
