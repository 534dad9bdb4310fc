"""BERT under Hugging Face's parameter names."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, NamedTuple

import weft
from weft import nn
from weft.core.tensor import Tensor
from weft.nn import functional as F
from weft.text.models.pretrained import Config, Pretrained, activation


@dataclasses.dataclass
class BertConfig(Config):
    """The sizes of a BERT, with the names and defaults of its config.json."""

    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str = "gelu"
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-12
    pad_token_id: int = 0
    num_labels: int = 2
    problem_type: str | None = None
    classifier_dropout: float | None = None
    tie_word_embeddings: bool = True

    only = {
        "position_embedding_type": ("absolute",),
        "is_decoder": (False,),
        "add_cross_attention": (False,),
    }

    @classmethod
    def from_dict(cls, found: dict) -> BertConfig:
        """From the content of a config.json, which may count labels by their names only."""
        if "num_labels" not in found and found.get("id2label"):
            found = {**found, "num_labels": len(found["id2label"])}
        return super().from_dict(found)


class BertEmbeddings(nn.Module):
    """The sum of embeddings of words, positions and segments, normalised."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        width = config.hidden_size
        padding = config.pad_token_id
        self.word_embeddings = nn.Embedding(config.vocab_size, width, padding_idx=padding)
        self.position_embeddings = nn.Embedding(config.max_position_embeddings, width)
        self.token_type_embeddings = nn.Embedding(config.type_vocab_size, width)
        self.LayerNorm = nn.LayerNorm(width, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, tokens: Tensor, types: Tensor | None, positions: Tensor | None) -> Tensor:
        """Features of tokens (batch, time)."""
        most = self.position_embeddings.num_embeddings
        if positions is None:
            if tokens.shape[1] > most:
                raise ValueError(
                    f"{tokens.shape[1]} positions are more than max_position_embeddings {most}"
                )
            positions = weft.arange(tokens.shape[1])[None]
        if types is None:
            types = weft.zeros_like(tokens)
        x = self.word_embeddings(tokens) + self.token_type_embeddings(types)
        return self.dropout(self.LayerNorm(x + self.position_embeddings(positions)))


class BertSelfAttention(nn.Module):
    """Queries, keys and values of several heads, mixed."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        width, self.heads = config.hidden_size, config.num_attention_heads
        if width % self.heads:
            raise ValueError(
                f"hidden_size {width} is not a multiple of num_attention_heads {self.heads}"
            )
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.dropout = config.attention_probs_dropout_prob

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Features (batch, time, width); False in the mask is not seen."""
        batch, time, width = x.shape
        q, k, v = (
            project(x).view(batch, time, self.heads, -1).transpose(1, 2)
            for project in (self.query, self.key, self.value)
        )
        drop = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, mask, dropout_p=drop)
        return y.transpose(1, 2).reshape(batch, time, width)


class BertOutput(nn.Module):
    """A linear layer whose result is added to a shortcut and normalised."""

    def __init__(self, inner: int, config: BertConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(inner, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, x: Tensor, shortcut: Tensor) -> Tensor:
        """The normalised sum."""
        return self.LayerNorm(self.dropout(self.dense(x)) + shortcut)


class BertLayer(nn.Module):
    """Attention and linear layers, each with a shortcut."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        # Containers that only give the parameters their names.
        self.attention = nn.Module()
        self.attention.self = BertSelfAttention(config)
        self.attention.output = BertOutput(config.hidden_size, config)
        self.intermediate = nn.Module()
        self.intermediate.dense = nn.Linear(config.hidden_size, config.intermediate_size)
        self.output = BertOutput(config.intermediate_size, config)
        self.act = activation(config.hidden_act)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """The features behind this layer."""
        x = self.attention.output(self.attention.self(x, mask), x)
        return self.output(self.act(self.intermediate.dense(x)), x)


class BertResult(NamedTuple):
    """What a BERT gives: features and the pooled first token, or logits and a loss."""

    last_hidden_state: Tensor | None = None
    pooler_output: Tensor | None = None
    logits: Tensor | None = None
    loss: Tensor | None = None


class _Bert(Pretrained):
    config_class = BertConfig
    model_type = "bert"
    base_prefix = "bert"
    ignored = ("position_ids",)
    config: BertConfig


class BertModel(_Bert):
    """BERT without a head.

    >>> config = BertConfig(vocab_size=50, hidden_size=16, num_hidden_layers=2,
    ...                     num_attention_heads=2, intermediate_size=32)
    >>> BertModel(config).eval()(weft.tensor([[2, 7, 9, 3]])).pooler_output.shape
    torch.Size([1, 16])
    """

    heads: ClassVar[tuple[str, ...]] = ("pooler.",)

    def __init__(self, config: BertConfig, add_pooling_layer: bool = True) -> None:
        super().__init__()
        self.config = config
        self.embeddings = BertEmbeddings(config)
        self.encoder = nn.Module()
        self.encoder.layer = nn.ModuleList(
            BertLayer(config) for _ in range(config.num_hidden_layers)
        )
        self.pooler: nn.Module | None = None
        if add_pooling_layer:
            self.pooler = nn.Module()
            self.pooler.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self._initialize(config.initializer_range)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
    ) -> BertResult:
        """Features (batch, time, width) and those of the first token behind the pooling layer.

        ``attention_mask`` (batch, time) is 0 for padding; ``token_type_ids`` says which of two
        sentences a token belongs to.
        """
        mask = None if attention_mask is None else attention_mask.bool()[:, None, None]
        x = self.embeddings(input_ids, token_type_ids, position_ids)
        for layer in self.encoder.layer:
            x = layer(x, mask)
        pooled = None if self.pooler is None else self.pooler.dense(x[:, 0]).tanh()
        return BertResult(x, pooled)


class BertForMaskedLM(_Bert):
    """BERT that predicts masked tokens."""

    heads: ClassVar[tuple[str, ...]] = ("cls.",)

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.config = config
        self.bert = BertModel(config, add_pooling_layer=False)
        width = config.hidden_size
        self.cls = nn.Module()
        self.cls.predictions = nn.Module()
        self.cls.predictions.bias = nn.Parameter(weft.zeros(config.vocab_size))
        self.cls.predictions.transform = nn.Module()
        self.cls.predictions.transform.dense = nn.Linear(width, width)
        self.cls.predictions.transform.LayerNorm = nn.LayerNorm(width, eps=config.layer_norm_eps)
        self.cls.predictions.decoder = nn.Linear(width, config.vocab_size)
        self.act = activation(config.hidden_act)
        for head in (self.cls.predictions.transform.dense, self.cls.predictions.decoder):
            nn.init.normal_(head.weight, std=config.initializer_range)
            nn.init.zeros_(head.bias)
        self.cls.predictions.decoder.bias = self.cls.predictions.bias
        if config.tie_word_embeddings:
            self.cls.predictions.decoder.weight = self.bert.embeddings.word_embeddings.weight

    def _tied(self) -> dict[str, str]:
        tied = {"cls.predictions.decoder.bias": "cls.predictions.bias"}
        if self.config.tie_word_embeddings:
            words = "bert.embeddings.word_embeddings.weight"
            tied["cls.predictions.decoder.weight"] = words
        return tied

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        labels: Tensor | None = None,
    ) -> BertResult:
        """Logits (batch, time, vocabulary), and the loss of ``labels``; -100 is left out."""
        x = self.bert(input_ids, attention_mask, token_type_ids, position_ids)[0]
        head = self.cls.predictions
        x = head.transform.LayerNorm(self.act(head.transform.dense(x)))
        logits = head.decoder(x)
        loss = None
        if labels is not None:
            loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten())
        return BertResult(logits=logits, loss=loss)


class BertForSequenceClassification(_Bert):
    """BERT with a linear layer on the pooled first token."""

    heads: ClassVar[tuple[str, ...]] = ("classifier.", "bert.pooler.")

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.config = config
        self.bert = BertModel(config)
        drop = config.classifier_dropout
        self.dropout = nn.Dropout(config.hidden_dropout_prob if drop is None else drop)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        nn.init.normal_(self.classifier.weight, std=config.initializer_range)
        nn.init.zeros_(self.classifier.bias)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        labels: Tensor | None = None,
    ) -> BertResult:
        """Logits (batch, labels) and the loss, of the kind that ``config.problem_type`` says."""
        pooled = self.bert(input_ids, attention_mask, token_type_ids, position_ids).pooler_output
        logits = self.classifier(self.dropout(pooled))
        return BertResult(
            logits=logits, loss=None if labels is None else self._loss(logits, labels)
        )

    def _loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        kind = self.config.problem_type
        if kind == "regression" or (kind is None and self.config.num_labels == 1):
            return F.mse_loss(logits.squeeze(), labels.squeeze())
        if kind == "multi_label_classification" or (kind is None and labels.is_floating_point()):
            return F.binary_cross_entropy_with_logits(logits, labels)
        return F.cross_entropy(logits, labels.flatten())
