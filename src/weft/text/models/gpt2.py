"""GPT-2 with a cache of keys and values, under Hugging Face's parameter names."""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar, NamedTuple

import weft
from weft import nn
from weft.core.tensor import Tensor
from weft.nn import functional as F
from weft.text.models.generation import sample_tokens
from weft.text.models.pretrained import Config, Pretrained, activation

# The keys and values of each layer, each of shape (batch, heads, time, width of a head).
Cache = list[tuple[Tensor, Tensor]]


@dataclasses.dataclass
class GPT2Config(Config):
    """The sizes of a GPT-2, with the names and defaults of its config.json."""

    vocab_size: int = 50257
    n_positions: int = 1024
    n_embd: int = 768
    n_layer: int = 12
    n_head: int = 12
    n_inner: int | None = None
    activation_function: str = "gelu_new"
    resid_pdrop: float = 0.1
    embd_pdrop: float = 0.1
    attn_pdrop: float = 0.1
    layer_norm_epsilon: float = 1e-5
    initializer_range: float = 0.02
    scale_attn_weights: bool = True
    scale_attn_by_inverse_layer_idx: bool = False
    tie_word_embeddings: bool = True
    bos_token_id: int | None = 50256
    eos_token_id: int | None = 50256

    only = {"add_cross_attention": (False,)}


class Conv1D(nn.Module):
    """A linear layer whose weight is (in, out), the transpose of ``nn.Linear``'s."""

    def __init__(self, outer: int, inner: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(weft.empty(inner, outer))
        self.bias = nn.Parameter(weft.zeros(outer))
        nn.init.normal_(self.weight, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        """The product and the bias."""
        return F.linear(x, self.weight.t(), self.bias)


class GPT2Attention(nn.Module):
    """Causal self-attention of several heads."""

    def __init__(self, config: GPT2Config, layer: int) -> None:
        super().__init__()
        if config.n_embd % config.n_head:
            raise ValueError(f"n_embd {config.n_embd} is not a multiple of n_head {config.n_head}")
        self.heads = config.n_head
        self.c_attn = Conv1D(3 * config.n_embd, config.n_embd)
        self.c_proj = Conv1D(config.n_embd, config.n_embd)
        self.resid_dropout = nn.Dropout(config.resid_pdrop)
        self.attn_pdrop = config.attn_pdrop
        self.scale = 1.0
        if config.scale_attn_weights:
            self.scale /= math.sqrt(config.n_embd // config.n_head)
        if config.scale_attn_by_inverse_layer_idx:
            self.scale /= layer + 1

    def forward(
        self, x: Tensor, mask: Tensor | None, past: tuple[Tensor, Tensor] | None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """The output, and the keys and values of all positions up to here.

        Without a mask all of ``x`` is new and each position sees those up to itself.
        """
        batch, time, width = x.shape
        parts = self.c_attn(x).split(width, dim=2)
        q, k, v = (t.view(batch, time, self.heads, -1).transpose(1, 2) for t in parts)
        if past is not None:
            k, v = weft.cat([past[0], k], dim=2), weft.cat([past[1], v], dim=2)
        drop = self.attn_pdrop if self.training else 0.0
        y = F.scaled_dot_product_attention(
            q, k, v, mask, dropout_p=drop, is_causal=mask is None, scale=self.scale
        )
        y = y.transpose(1, 2).reshape(batch, time, width)
        return self.resid_dropout(self.c_proj(y)), (k, v)


class GPT2MLP(nn.Module):
    """Two linear layers with an activation between."""

    def __init__(self, config: GPT2Config) -> None:
        super().__init__()
        inner = config.n_inner or 4 * config.n_embd
        self.c_fc = Conv1D(inner, config.n_embd)
        self.c_proj = Conv1D(config.n_embd, inner)
        self.act = activation(config.activation_function)
        self.dropout = nn.Dropout(config.resid_pdrop)

    def forward(self, x: Tensor) -> Tensor:
        """The output."""
        return self.dropout(self.c_proj(self.act(self.c_fc(x))))


class GPT2Block(nn.Module):
    """Attention and linear layers, each behind a normalisation and beside a shortcut."""

    def __init__(self, config: GPT2Config, layer: int) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(config.n_embd, eps=config.layer_norm_epsilon)
        self.attn = GPT2Attention(config, layer)
        self.ln_2 = nn.LayerNorm(config.n_embd, eps=config.layer_norm_epsilon)
        self.mlp = GPT2MLP(config)

    def forward(
        self, x: Tensor, mask: Tensor | None, past: tuple[Tensor, Tensor] | None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """The output, and the keys and values for the cache."""
        attended, now = self.attn(self.ln_1(x), mask, past)
        x = x + attended
        return x + self.mlp(self.ln_2(x)), now


class GPT2Output(NamedTuple):
    """What a GPT-2 gives: features, or logits and a loss, and the cache."""

    last_hidden_state: Tensor | None = None
    logits: Tensor | None = None
    loss: Tensor | None = None
    past_key_values: Cache | None = None


class _GPT2(Pretrained):
    config_class = GPT2Config
    model_type = "gpt2"
    base_prefix = "transformer"
    ignored = (".attn.bias", ".attn.masked_bias")  # masks that old files hold
    config: GPT2Config


class GPT2Model(_GPT2):
    """GPT-2 without a head.

    >>> net = GPT2Model(GPT2Config(vocab_size=50, n_embd=16, n_layer=2, n_head=2)).eval()
    >>> net(weft.tensor([[3, 1, 4]])).last_hidden_state.shape
    torch.Size([1, 3, 16])
    """

    def __init__(self, config: GPT2Config) -> None:
        super().__init__()
        self.config = config
        self.wte = nn.Embedding(config.vocab_size, config.n_embd)
        self.wpe = nn.Embedding(config.n_positions, config.n_embd)
        self.drop = nn.Dropout(config.embd_pdrop)
        self.h = nn.ModuleList(GPT2Block(config, i) for i in range(config.n_layer))
        self.ln_f = nn.LayerNorm(config.n_embd, eps=config.layer_norm_epsilon)
        self._initialize(config.initializer_range)
        for name, parameter in self.named_parameters():
            if name.endswith("c_proj.weight"):  # sums over layers keep their size
                std = config.initializer_range / math.sqrt(2 * config.n_layer)
                nn.init.normal_(parameter, std=std)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Cache | None = None,
        use_cache: bool = False,
    ) -> GPT2Output:
        """Features of token numbers (batch, time), which follow those of the cache.

        ``attention_mask`` (batch, time of cache and input) is 0 for padding.
        """
        before = past_key_values[0][0].shape[2] if past_key_values else 0
        count = before + input_ids.shape[1]
        if count > self.config.n_positions:
            raise ValueError(
                f"{count} positions are more than the {self.config.n_positions} of n_positions"
            )
        if position_ids is None:
            position_ids = weft.arange(before, count)[None]
        x = self.drop(self.wte(input_ids) + self.wpe(position_ids))
        mask = self._mask(before, count, attention_mask)
        cache: Cache = []
        for i, block in enumerate(self.h):
            x, now = block(x, mask, past_key_values[i] if past_key_values else None)
            cache.append(now)
        return GPT2Output(self.ln_f(x), past_key_values=cache if use_cache else None)

    @staticmethod
    def _mask(before: int, count: int, attention_mask: Tensor | None) -> Tensor | None:
        """What each new position may see; None if that is all up to itself and nothing else."""
        if before == 0 and attention_mask is None:
            return None
        causal = weft.arange(count) <= weft.arange(before, count)[:, None]
        if attention_mask is None:
            return causal
        if attention_mask.shape[1] != count:
            raise ValueError(
                f"attention_mask of shape {tuple(attention_mask.shape)} is for cache and input "
                f"together, {count} positions"
            )
        seen = causal & attention_mask.bool()[:, None, None]
        # A padding position sees itself, so that no softmax is over nothing.
        return seen | (weft.arange(count) == weft.arange(before, count)[:, None])


class GPT2LMHeadModel(_GPT2):
    """GPT-2 that predicts the next token.

    >>> net = GPT2LMHeadModel(GPT2Config(vocab_size=50, n_embd=16, n_layer=2, n_head=2)).eval()
    >>> net.generate(weft.tensor([[3, 1]]), max_new_tokens=4).shape
    torch.Size([1, 6])
    """

    heads: ClassVar[tuple[str, ...]] = ("lm_head.",)

    def __init__(self, config: GPT2Config) -> None:
        super().__init__()
        self.config = config
        self.transformer = GPT2Model(config)
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        if config.tie_word_embeddings:
            self.lm_head.weight = self.transformer.wte.weight
        else:
            nn.init.normal_(self.lm_head.weight, std=config.initializer_range)

    def _tied(self) -> dict[str, str]:
        tied = self.config.tie_word_embeddings
        return {"lm_head.weight": "transformer.wte.weight"} if tied else {}

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Cache | None = None,
        use_cache: bool = False,
        labels: Tensor | None = None,
    ) -> GPT2Output:
        """Logits (batch, time, vocabulary), and the mean loss of ``labels`` behind each token.

        ``labels`` are as long as the input and are moved by one here; -100 is left out.
        """
        inner = self.transformer(
            input_ids, attention_mask, position_ids, past_key_values, use_cache
        )
        logits = self.lm_head(inner.last_hidden_state)
        loss = None
        if labels is not None:
            loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
        return GPT2Output(None, logits, loss, inner.past_key_values)

    def generate(
        self,
        input_ids: Tensor,
        max_new_tokens: int = 20,
        do_sample: bool = False,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        eos_token_id: int | None = None,
        pad_token_id: int | None = None,
        attention_mask: Tensor | None = None,
        use_cache: bool = True,
        generator: weft.Generator | None = None,
    ) -> Tensor:
        """The input with tokens that follow it: the likeliest, or drawn at random by ``generator``.

        Rows of different lengths are padded in front, with ``attention_mask`` 0 there. A row that
        has written ``eos_token_id`` goes on with ``pad_token_id``.
        """
        if pad_token_id is None:
            pad_token_id = eos_token_id
        if attention_mask is None:
            attention_mask = weft.ones_like(input_ids)
        else:
            attention_mask = attention_mask.long()
        running = weft.ones(len(input_ids), dtype=weft.bool)
        cache: Cache | None = None
        was_training = self.training
        self.eval()
        try:
            with weft.no_grad():
                for _ in range(max_new_tokens):
                    logits, cache = self._next(input_ids, attention_mask, cache, use_cache)
                    heat = temperature if do_sample else 0.0
                    chosen = sample_tokens(logits, heat, top_k, top_p, generator)
                    if eos_token_id is not None:
                        chosen = chosen.where(running, pad_token_id)
                        running = running & (chosen != eos_token_id)
                    input_ids = weft.cat([input_ids, chosen[:, None]], dim=1)
                    attention_mask = weft.cat(
                        [attention_mask, weft.ones_like(chosen)[:, None]], dim=1
                    )
                    if not running.any():
                        break
        finally:
            self.train(was_training)
        return input_ids

    def _next(
        self, tokens: Tensor, seen: Tensor, cache: Cache | None, use_cache: bool
    ) -> tuple[Tensor, Cache | None]:
        """Logits of the next token, and the cache with the tokens so far."""
        before = cache[0][0].shape[2] if cache else 0
        places = (seen.cumsum(dim=1) - 1).clamp(min=0)
        out = self(
            tokens[:, before:],
            attention_mask=None if bool(seen.all()) else seen,
            position_ids=places[:, before:],
            past_key_values=cache,
            use_cache=use_cache,
        )
        return out.logits[:, -1], out.past_key_values
