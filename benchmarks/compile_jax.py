"""The steps of ``python -m benchmarks compile`` in JAX: one jitted function each.

Every step starts from the weights of a step in torch and reads the same data, so losses can be
compared. Parameters, states and caches are donated: the function may write its results there.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np
from jax import lax
from jax import numpy as jnp

from benchmarks import compile_generation as sizes

Values = dict[str, Any]
RATE, BETA1, BETA2, EPSILON = 1e-3, 0.9, 0.999, 1e-8  # Adam's


def normal(*shape: int, seed: int = 0) -> Any:
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def integers(high: int, *shape: int, seed: int = 1) -> Any:
    return jnp.asarray(np.random.default_rng(seed).integers(0, high, shape))


def values_of(module: Any) -> tuple[Values, Values]:
    """The parameters of a torch module, and its buffers."""
    found: list[Values] = [{}, {}]
    for part, named in zip(found, (module.named_parameters, module.named_buffers), strict=True):
        part.update((name, jnp.asarray(t.detach().numpy().copy())) for name, t in named())
    return found[0], found[1]


# --- layers ----------------------------------------------------------------------------


def linear(p: Values, name: str, x: Any) -> Any:
    y = x @ p[f"{name}.weight"].T
    return y + p[f"{name}.bias"] if f"{name}.bias" in p else y


def convolution(p: Values, name: str, x: Any, stride: int = 1, padding: int = 0) -> Any:
    sides = [(padding, padding)] * 2
    numbers = ("NCHW", "OIHW", "NCHW")
    y = lax.conv_general_dilated(x, p[f"{name}.weight"], (stride, stride), sides,
                                 dimension_numbers=numbers)  # fmt: skip
    return y + p[f"{name}.bias"][:, None, None] if f"{name}.bias" in p else y


def pool(x: Any) -> Any:
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")


def batch_norm(p: Values, running: Values, name: str, x: Any) -> Any:
    """The normalised values; running statistics are put in place of the old ones."""
    mean = x.mean((0, 2, 3))
    centred = x - mean[:, None, None]
    variance = (centred * centred).mean((0, 2, 3))
    count = x.size // x.shape[1]
    for what, new in (("mean", mean), ("var", variance * (count / (count - 1)))):
        key = f"{name}.running_{what}"
        running[key] = 0.9 * running[key] + 0.1 * lax.stop_gradient(new)
    scale = p[f"{name}.weight"] * lax.rsqrt(variance + 1e-5)
    return centred * scale[:, None, None] + p[f"{name}.bias"][:, None, None]


def layer_norm(p: Values, name: str, x: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    variance = (centred * centred).mean(-1, keepdims=True)
    return centred * lax.rsqrt(variance + 1e-5) * p[f"{name}.weight"] + p[f"{name}.bias"]


def cross_entropy(scores: Any, y: Any) -> Any:
    return -jnp.take_along_axis(jax.nn.log_softmax(scores), y[:, None], 1).mean()


def perceptron(p: Values, x: Any) -> Any:
    """Linear layers with ReLU between them, as a ``Sequential`` numbers them."""
    names = sorted({key.rpartition(".")[0] for key in p}, key=int)
    for name in names[:-1]:
        x = jax.nn.relu(linear(p, name, x))
    return linear(p, names[-1], x)


# --- networks --------------------------------------------------------------------------


def small_loss(p: Values, running: Values, x: Any, y: Any) -> tuple[Any, Values]:
    return ((perceptron(p, x) - y) ** 2).mean(), running


def mlp_loss(p: Values, running: Values, x: Any, y: Any) -> tuple[Any, Values]:
    return cross_entropy(perceptron(p, x), y), running


def cnn_loss(p: Values, running: Values, x: Any, y: Any) -> tuple[Any, Values]:
    for name in ("0", "3"):
        x = pool(jax.nn.relu(convolution(p, name, x)))
    x = jax.nn.relu(linear(p, "7", x.reshape(len(x), -1)))
    return cross_entropy(linear(p, "9", x), y), running


def resnet18_loss(p: Values, running: Values, x: Any, y: Any) -> tuple[Any, Values]:
    running = dict(running)
    x = jax.nn.relu(batch_norm(p, running, "1", convolution(p, "0", x, padding=1)))
    for k in range(8):
        name, stride = str(k + 3), 2 if k in (2, 4, 6) else 1
        z = convolution(p, f"{name}.conv1", x, stride, 1)
        z = jax.nn.relu(batch_norm(p, running, f"{name}.bn1", z))
        z = batch_norm(p, running, f"{name}.bn2", convolution(p, f"{name}.conv2", z, 1, 1))
        if f"{name}.shortcut.0.weight" in p:
            x = convolution(p, f"{name}.shortcut.0", x, stride)
            x = batch_norm(p, running, f"{name}.shortcut.1", x)
        x = jax.nn.relu(z + x)
    return cross_entropy(linear(p, "13", x.mean((2, 3))), y), running


def lstm_loss(p: Values, running: Values, x: Any, y: Any) -> tuple[Any, Values]:
    for layer in range(2):
        w, u, a, b = (
            p[f"lstm.{key}_l{layer}"] for key in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )
        zeros = jnp.zeros((x.shape[1], 256))

        def step(state: Any, projected: Any, u: Any = u) -> Any:
            h, c = state
            i, f, g, o = jnp.split(projected + h @ u.T, 4, -1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        x = lax.scan(step, (zeros, zeros), x @ w.T + (a + b))[1]
    return cross_entropy(linear(p, "head", x[-1]), y), running


def gpt_loss(p: Values, running: Values, tokens: Any, y: Any) -> tuple[Any, Values]:
    batch, length = tokens.shape
    x = p["tokens.weight"][tokens] + p["places.weight"][jnp.arange(length)]
    hidden = jnp.tril(jnp.ones((length, length), bool))
    for k in range(4):
        name = f"blocks.{k}"
        parts = jnp.split(linear(p, f"{name}.qkv", layer_norm(p, f"{name}.norm1", x)), 3, -1)
        q, k_, v = (t.reshape(batch, length, 8, -1).transpose(0, 2, 1, 3) for t in parts)
        scores = q @ k_.swapaxes(2, 3) / q.shape[-1] ** 0.5
        z = jax.nn.softmax(jnp.where(hidden, scores, -jnp.inf)) @ v
        x = x + linear(p, f"{name}.out", z.transpose(0, 2, 1, 3).reshape(x.shape))
        z = jax.nn.gelu(linear(p, f"{name}.up", layer_norm(p, f"{name}.norm2", x)), False)
        x = x + linear(p, f"{name}.down", z)
    scores = linear(p, "head", layer_norm(p, "norm", x))
    return cross_entropy(scores.reshape(-1, scores.shape[-1]), y), running


def gpt_data() -> tuple[Any, Any]:
    text = integers(65, 8, 129)
    return text[:, :-1], text[:, 1:].reshape(-1)


LOSSES: dict[str, tuple[Callable, Callable[[], tuple[Any, Any]]]] = {
    "mlp": (mlp_loss, lambda: (normal(64, 784), integers(10, 64))),
    "cnn": (cnn_loss, lambda: (normal(64, 3, 32, 32), integers(10, 64))),
    "resnet18": (resnet18_loss, lambda: (normal(32, 3, 32, 32), integers(10, 32))),
    "lstm": (lstm_loss, lambda: (normal(64, 32, 256), integers(10, 32))),
    "gpt": (gpt_loss, gpt_data),
}


# --- steps -----------------------------------------------------------------------------


def adam(p: Values, grads: Values, state: Any) -> tuple[Values, Any]:
    means, squares, count = state
    count = count + 1
    means = jax.tree.map(lambda m, g: BETA1 * m + (1 - BETA1) * g, means, grads)
    squares = jax.tree.map(lambda v, g: BETA2 * v + (1 - BETA2) * g * g, squares, grads)
    rate, root = RATE / (1 - BETA1**count), jnp.sqrt(1 - BETA2**count)
    new = jax.tree.map(
        lambda x, m, v: x - rate * m / (jnp.sqrt(v) / root + EPSILON), p, means, squares
    )
    return new, (means, squares, count)


def fresh(p: Values) -> Any:
    """The state of Adam before its first step."""
    return (*(jax.tree.map(jnp.zeros_like, p) for _ in range(2)), jnp.zeros(()))


def trained(loss: Callable, module: Any, x: Any, y: Any) -> Callable[[], Any]:
    """Steps of Adam on one loss."""

    @partial(jax.jit, donate_argnums=(0, 1, 2))
    def step(p: Values, running: Values, state: Any, x: Any, y: Any) -> Any:
        (found, running), grads = jax.value_and_grad(loss, has_aux=True)(p, running, x, y)
        p, state = adam(p, grads, state)
        return p, running, state, found

    p, running = values_of(module)
    return kept(step, (p, running, fresh(p)), lambda: (x, y))


def kept(step: Callable, state: tuple[Any, ...], inputs: Callable) -> Callable[[], Any]:
    """A step that keeps what it gives for the next one, and waits for its last result."""

    def run() -> Any:
        nonlocal state
        *given, result = step(*state, *inputs())
        state = tuple(given)
        return result.block_until_ready()

    return run


def q_learning(policy: Any, target: Any) -> Callable[[], Any]:
    """One step of Q-learning with a target network."""
    state, following = normal(128, 4), normal(128, 4, seed=2)
    action, reward = integers(2, 128, 1), normal(128, seed=3)
    going_on = integers(2, 128, seed=4).astype(jnp.float32)

    def loss(p: Values, old: Values, batch: Any) -> Any:
        state, action, reward, following, going_on = batch
        value = jnp.take_along_axis(perceptron(p, state), action, 1)[:, 0]
        best = perceptron(old, following).max(1)
        error = jnp.abs(value - lax.stop_gradient(reward + 0.99 * going_on * best))
        return jnp.where(error < 1, 0.5 * error * error, error - 0.5).mean()

    @partial(jax.jit, donate_argnums=(0, 1, 2))
    def step(p: Values, old: Values, moments: Any, batch: Any) -> Any:
        found, grads = jax.value_and_grad(loss)(p, old, batch)
        p, moments = adam(p, grads, moments)
        old = jax.tree.map(lambda t, x: 0.995 * t + 0.005 * x, old, p)
        return p, old, moments, found

    p, old = values_of(policy)[0], values_of(target)[0]
    batch = (state, action, reward, following, going_on)
    return kept(step, (p, old, fresh(p)), lambda: (batch,))


def generating(module: Any) -> Callable[[], Any]:
    """Tokens one by one, with keys and values of all that came before."""
    heads, width, context = sizes.HEADS, sizes.WIDTH, sizes.CONTEXT
    p = values_of(module)[0]

    @partial(jax.jit, donate_argnums=(0,))
    def step(caches: Any, token: Any, place: Any, p: Values) -> Any:
        x = p["tokens.weight"][token] + p["places.weight"][place]
        seen = jnp.arange(context) <= place
        new = []
        for k, (keys, values) in enumerate(caches):
            name = f"blocks.{k}"
            parts = jnp.split(linear(p, f"{name}.qkv", layer_norm(p, f"{name}.norm1", x)), 3, -1)
            q, key, value = (t.reshape(heads, 1, -1) for t in parts)
            keys = lax.dynamic_update_slice(keys, key, (0, place, 0))
            values = lax.dynamic_update_slice(values, value, (0, place, 0))
            new.append((keys, values))
            scores = q @ keys.swapaxes(1, 2) / q.shape[-1] ** 0.5
            z = jax.nn.softmax(jnp.where(seen, scores, -jnp.inf)) @ values
            x = x + linear(p, f"{name}.out", z.reshape(width))
            z = jax.nn.gelu(linear(p, f"{name}.up", layer_norm(p, f"{name}.norm2", x)), False)
            x = x + linear(p, f"{name}.down", z)
        logits = linear(p, "head", layer_norm(p, "norm", x))
        return new, logits.argmax(), logits.sum()

    shape = (heads, context, width // heads)
    caches = [(jnp.zeros(shape), jnp.zeros(shape)) for _ in range(sizes.LAYERS)]
    at = -1

    def inputs() -> tuple[Any, ...]:
        nonlocal at
        at = (at + 1) % context
        return at, p

    return kept(step, (caches, jnp.zeros((), int)), inputs)


def small(module: Any, x: Any, y: Any) -> Callable[[], Any]:
    """A step of a small network, on data that torch drew."""
    return trained(small_loss, module, jnp.asarray(x.numpy()), jnp.asarray(y.numpy()))


def jitted(name: str, modules: list[Any]) -> Callable[[], Any]:
    """The step of a row, from the weights of some torch modules."""
    if name == "dqn":
        return q_learning(*modules)
    if name == "generation":
        return generating(*modules)
    loss, data = LOSSES[name]
    return trained(loss, modules[0], *data())
