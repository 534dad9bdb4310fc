"""A GPT that generates tokens one by one: one token goes in, keys and values of all are kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

WIDTH, HEADS, LAYERS, CONTEXT, VOCABULARY = 256, 8, 4, 128, 65


def generation(lib: Any) -> Any:
    """The model: from a token and its place to the scores of the next one."""
    nn, f = lib.nn, lib.nn.functional

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
            self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
            self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
            shape = (1, HEADS, CONTEXT, WIDTH // HEADS)
            self.register_buffer("keys", lib.zeros(shape))
            self.register_buffer("values", lib.zeros(shape))

        def forward(self, x: Any, place: Any, seen: Any) -> Any:
            parts = self.qkv(self.norm1(x)).split(WIDTH, dim=2)
            q, k, v = (p.view(1, 1, HEADS, -1).transpose(1, 2) for p in parts)
            self.keys.index_copy_(2, place, k)
            self.values.index_copy_(2, place, v)
            y = f.scaled_dot_product_attention(q, self.keys, self.values, attn_mask=seen)
            x = x + self.out(y.transpose(1, 2).reshape(1, 1, WIDTH))
            return x + self.down(f.gelu(self.up(self.norm2(x))))

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens = nn.Embedding(VOCABULARY, WIDTH)
            self.places = nn.Embedding(CONTEXT, WIDTH)
            self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
            self.norm = nn.LayerNorm(WIDTH)
            self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
            self.register_buffer("all_places", lib.arange(CONTEXT))

        def forward(self, token: Any, place: Any) -> Any:
            x = self.tokens(token) + self.places(place)
            seen = (self.all_places <= place).view(1, 1, 1, CONTEXT)
            for block in self.blocks:
                x = block(x, place, seen)
            return self.head(self.norm(x))

    lib.manual_seed(0)
    return Model().eval()


def generating(lib: Any, model: Any, call: Callable) -> Callable:
    """A function that generates one token by a (compiled) call of the model."""
    state = {"token": lib.zeros((1, 1), dtype=lib.int64), "at": 0}
    places = [lib.tensor([k]) for k in range(CONTEXT)]

    def step() -> Any:
        if state["at"] == CONTEXT:
            state["at"] = 0
        with lib.no_grad():
            logits = call(state["token"], places[state["at"]])
            state["token"] = logits.argmax(-1)
        state["at"] += 1
        return logits.sum()

    return step
