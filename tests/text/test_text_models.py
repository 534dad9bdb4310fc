"""Models of text: Hugging Face's numbers, caches, searches and training."""

from __future__ import annotations

import itertools
import json
import math
import pathlib

import numpy as np
import pytest
import text_numbers as table

import weft
from weft import nn
from weft.io.safetensors import load_safetensors, save_safetensors
from weft.text import models

PRETRAINED = table.numbers()["pretrained"]
NAMES = [name for name in PRETRAINED if "config" in PRETRAINED[name]]


def saved(folder: pathlib.Path, name: str, prefix: str = "") -> type:
    """A folder as transformers writes it, with made values; the class that it is of."""
    stored = PRETRAINED[name]
    weights = {
        key.removeprefix(prefix): weft.from_numpy(table.values(key, shape))
        for key, shape in stored["shapes"].items()
    }
    (folder / "config.json").write_text(json.dumps(stored["config"]))
    save_safetensors(weights, folder / "model.safetensors")
    return getattr(models, name.split()[1])


def close(found: object, expected: object) -> None:
    if isinstance(expected, dict):
        assert isinstance(found, dict) and found.keys() == expected.keys()
        for key in expected:
            close(found[key], expected[key])
    else:
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_pretrained_models_give_the_numbers_of_transformers(
    name: str, tmp_path: pathlib.Path
) -> None:
    kind = saved(tmp_path, name)
    net = kind.from_pretrained(tmp_path)
    assert not net.training
    if "gpt2" in PRETRAINED[name]["config"]["model_type"]:
        close(table.run_gpt2(weft, net), PRETRAINED[name]["results"])
    else:
        close(table.run_bert(weft, name.split()[1], net), PRETRAINED[name]["results"])


@pytest.mark.parametrize("name", NAMES)
def test_saving_writes_the_names_that_transformers_writes(
    name: str, tmp_path: pathlib.Path
) -> None:
    kind = saved(tmp_path, name)
    net = kind.from_pretrained(tmp_path)
    net.save_pretrained(tmp_path / "again")
    written = load_safetensors(tmp_path / "again" / "model.safetensors")
    shapes = {key: list(value.shape) for key, value in written.items()}
    assert shapes == PRETRAINED[name]["shapes"]
    again = kind.from_pretrained(tmp_path / "again")
    assert again.config == net.config
    for key, value in net.state_dict().items():
        assert weft.equal(value, again.state_dict()[key])


def test_files_of_the_inner_model_and_old_names_are_read(tmp_path: pathlib.Path) -> None:
    kind = saved(tmp_path, "gpt2 GPT2LMHeadModel", prefix="transformer.")
    weights = load_safetensors(tmp_path / "model.safetensors")
    weights["h.0.attn.bias"] = weft.ones(1, 1, 24, 24)  # a mask, as the published file has it
    save_safetensors(weights, tmp_path / "model.safetensors")
    close(
        table.run_gpt2(weft, kind.from_pretrained(tmp_path)),
        PRETRAINED["gpt2 GPT2LMHeadModel"]["results"],
    )
    saved(tmp_path, "bert BertForMaskedLM")
    weights = {}
    for key, value in load_safetensors(tmp_path / "model.safetensors").items():
        old = key.replace("LayerNorm.weight", "LayerNorm.gamma")
        weights[old.replace("LayerNorm.bias", "LayerNorm.beta")] = value
    weights["bert.embeddings.position_ids"] = weft.arange(24)[None]
    save_safetensors(weights, tmp_path / "model.safetensors")
    net = models.BertForMaskedLM.from_pretrained(tmp_path)
    results = PRETRAINED["bert BertForMaskedLM"]["results"]
    close(table.run_bert(weft, "BertForMaskedLM", net), results)
    with pytest.raises(RuntimeError, match=r"no bert\.pooler\.dense\.weight.*strict=False"):
        models.BertForSequenceClassification.from_pretrained(tmp_path)
    drawn = models.BertForSequenceClassification.from_pretrained(tmp_path, strict=False)
    words = drawn.bert.embeddings.word_embeddings.weight
    assert weft.equal(words, net.bert.embeddings.word_embeddings.weight)


def test_refusals_name_what_is_wrong(tmp_path: pathlib.Path) -> None:
    with pytest.raises(FileNotFoundError, match="nothing is downloaded"):
        models.GPT2Model.from_pretrained("gpt2")
    saved(tmp_path, "gpt2 GPT2LMHeadModel")
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "vocab_size": 41}))
    with pytest.raises(RuntimeError, match=r"wte\.weight is of shape \(40, 24\)"):
        models.GPT2LMHeadModel.from_pretrained(tmp_path)
    with pytest.raises(ValueError, match="position_embedding_type='relative_key'"):
        models.BertConfig.from_dict({"position_embedding_type": "relative_key"})
    weights = tmp_path / "model.safetensors"
    index = {"weight_map": {"wte.weight": "../model.safetensors"}}
    weights.rename(tmp_path / "other")
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ValueError, match="outside of its folder"):
        models.GPT2LMHeadModel.from_pretrained(tmp_path)


def small_gpt(**options: object) -> models.GPT2LMHeadModel:
    weft.manual_seed(0)
    sizes = {"vocab_size": 30, "n_positions": 32, "n_embd": 16, "n_layer": 2, "n_head": 2}
    return models.GPT2LMHeadModel(models.GPT2Config(**sizes, initializer_range=0.5, **options))


def test_the_cache_changes_nothing_and_dropout_is_off_while_writing() -> None:
    net = small_gpt()
    prompt = weft.tensor([[1, 2, 3], [4, 5, 6]])
    seen = weft.tensor([[0, 1, 1], [1, 1, 1]])
    for options in ({}, {"attention_mask": seen}):
        with_cache = net.generate(prompt, max_new_tokens=12, **options)
        without = net.generate(prompt, max_new_tokens=12, use_cache=False, **options)
        assert weft.equal(with_cache, without) and net.training
    net.eval()
    whole = net(prompt).logits
    first = net(prompt[:, :2], use_cache=True)
    rest = net(prompt[:, 2:], past_key_values=first.past_key_values)
    np.testing.assert_allclose(
        rest.logits[:, 0].detach(), whole[:, 2].detach(), rtol=1e-5, atol=1e-5
    )


def test_padding_in_front_changes_nothing() -> None:
    net = small_gpt().eval()
    alone = net.generate(weft.tensor([[7, 8]]), max_new_tokens=6)
    prompt = weft.tensor([[0, 0, 7, 8]])
    padded = net.generate(prompt, max_new_tokens=6, attention_mask=weft.tensor([[0, 0, 1, 1]]))
    assert weft.equal(alone, padded[:, 2:])


def test_sampling_follows_its_generator_and_ends_at_the_end_token() -> None:
    net = small_gpt().eval()
    prompt = weft.tensor([[1, 2]] * 4)

    def draw(seed: int) -> weft.Tensor:
        generator = weft.Generator().manual_seed(seed)
        options = {"do_sample": True, "temperature": 1.5, "top_k": 20}
        return net.generate(prompt, 8, generator=generator, **options)

    assert weft.equal(draw(1), draw(1)) and not weft.equal(draw(1), draw(2))
    assert weft.equal(net.generate(prompt, 8, do_sample=True, top_k=1), net.generate(prompt, 8))
    first = int(net.generate(prompt[:1], 1)[0, 2])
    ended = net.generate(prompt[:1], 8, eos_token_id=first, pad_token_id=29)
    assert ended.tolist() == [[1, 2, first]]
    rows = net.generate(weft.tensor([[1, 2], [9, 9]]), 6, eos_token_id=first, pad_token_id=29)
    assert rows[0, 3:].tolist() == [29] * (rows.shape[1] - 3)


@pytest.mark.parametrize("name", [n for n in PRETRAINED if n.startswith("top_")])
def test_filters_keep_what_transformers_keeps(name: str) -> None:
    kind, value = name.split()
    logits = weft.from_numpy(table.values("logits", [3, 12])) * 10
    option = {kind: int(value) if kind == "top_k" else float(value)}
    assert models.filter_logits(logits, **option).isfinite().tolist() == PRETRAINED[name]


def test_drawn_tokens_have_their_probabilities() -> None:
    logits = weft.tensor([0.1, 0.2, 0.3, 0.4]).log().repeat(20000, 1)
    drawn = models.sample_tokens(logits, generator=weft.Generator().manual_seed(0))
    shares = drawn.bincount(minlength=4) / 20000
    np.testing.assert_allclose(shares, [0.1, 0.2, 0.3, 0.4], atol=0.015)
    warm = models.sample_tokens(logits, 0.5, generator=weft.Generator().manual_seed(0))
    squares = np.array([1, 4, 9, 16]) / 30
    np.testing.assert_allclose(warm.bincount(minlength=4) / 20000, squares, atol=0.015)


# --- searches --------------------------------------------------------------------------------


class Chain(models.generation.Translator):
    """Log-probabilities that depend on the token before and on the row."""

    def __init__(self, table: weft.Tensor) -> None:
        super().__init__()
        self.table = table  # (rows, tokens, tokens)

    def begin(self, src: weft.Tensor) -> models.generation.State:
        return {"row": src[:, 0]}

    def advance(
        self, tokens: weft.Tensor, state: models.generation.State
    ) -> tuple[weft.Tensor, models.generation.State]:
        return self.table[state["row"], tokens], state


def best_of_all(table: weft.Tensor, longest: int, penalty: float) -> list[int]:
    """Every sentence that ends in time, tried out; 0 begins and 1 ends."""
    log_p = table.log_softmax(dim=-1).tolist()
    best, best_score = [], -math.inf
    for length in range(longest):
        for tokens in itertools.product(range(2, len(log_p)), repeat=length):
            path = [0, *tokens, 1]
            score = sum(log_p[a][b] for a, b in itertools.pairwise(path)) / (length + 1) ** penalty
            if score > best_score:
                best, best_score = list(tokens), score
    return best


@pytest.mark.parametrize("penalty", [0.0, 0.7, 1.0])
def test_a_wide_beam_finds_the_best_sentence(penalty: float) -> None:
    weft.manual_seed(int(penalty * 10))
    tables = 2 * weft.randn(6, 4, 4)
    tables[:, :, 0] = -50.0  # nothing begins again
    search = Chain(tables).eval()
    rows = weft.arange(6)[:, None]
    found = search.beam(rows, 0, 1, max_length=5, beams=40, length_penalty=penalty)
    assert found == [best_of_all(table, 5, penalty) for table in tables]
    # Rows do not disturb each other, and one beam is the greedy way as far as that goes.
    alone = [search.beam(rows[i : i + 1], 0, 1, 5, 3, penalty)[0] for i in range(6)]
    assert search.beam(rows, 0, 1, 5, 3, penalty) == alone


def test_greedy_search_takes_the_likeliest() -> None:
    weft.manual_seed(0)
    tables = weft.randn(5, 6, 6)
    found = Chain(tables).eval().greedy(weft.arange(5)[:, None], 0, 1, max_length=4)
    for row, tokens in enumerate(found):
        now, expected = 0, []
        for _ in range(4):
            now = int(tables[row, now].argmax())
            if now == 1:
                break
            expected.append(now)
        assert tokens == expected


# --- training --------------------------------------------------------------------------------


def reversal(count: int, seed: int = 0) -> tuple[weft.Tensor, weft.Tensor]:
    """Sequences (3 to 8; 0 pads) and their reverse between 1 (begin) and 2 (end)."""
    draw = np.random.default_rng(seed)
    src, tgt = np.zeros((count, 5), int), np.zeros((count, 7), int)
    for i, n in enumerate(draw.integers(2, 6, count)):
        src[i, :n] = draw.integers(3, 9, n)
        tgt[i, : n + 2] = [1, *src[i, :n][::-1], 2]
    return weft.from_numpy(src), weft.from_numpy(tgt)


def make(kind: str) -> models.generation.Translator:
    if kind == "transformer":
        return models.Seq2SeqTransformer(
            9, 9, 32, 4, 1, 1, 64, dropout=0.0, max_length=16, norm_first=True
        )
    return models.AttentionSeq2Seq(9, 9, 24, 32, attention=kind, dropout=0.0)


@pytest.mark.parametrize("kind", ["transformer", "bahdanau", "luong"])
def test_sequence_to_sequence_models_learn_to_reverse(kind: str) -> None:
    weft.manual_seed(0)
    net = make(kind)
    optimizer = weft.optim.Adam(net.parameters(), lr=5e-3)
    all_src, all_tgt = reversal(960)
    for step in range(100):
        part = slice(step % 20 * 48, step % 20 * 48 + 48)
        src, tgt = all_src[part], all_tgt[part]
        logits = net(src, tgt[:, :-1])
        loss = nn.functional.cross_entropy(
            logits.flatten(0, 1), tgt[:, 1:].flatten(), ignore_index=0
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with pytest.raises(RuntimeError, match=r"call eval\(\) first"):
        net.greedy(src, 1, 2)
    net.eval()
    src, tgt = reversal(40, seed=1)
    right = [[t for t in row if t > 2] for row in tgt.tolist()]
    share = lambda found: sum(a == b for a, b in zip(found, right, strict=True)) / 40
    assert share(net.greedy(src, 1, 2, max_length=8)) >= 0.8
    assert share(net.beam(src, 1, 2, max_length=8, beams=3)) >= 0.8


@pytest.mark.parametrize("kind", ["transformer", "bahdanau", "luong"])
def test_padding_and_later_tokens_are_not_seen(kind: str) -> None:
    weft.manual_seed(0)
    net = make(kind).eval()
    src, tgt = weft.tensor([[3, 4, 5]]), weft.tensor([[1, 5, 4, 3]])
    logits = net(src, tgt)
    longer = net(nn.functional.pad(src, (0, 4)), tgt)
    np.testing.assert_allclose(longer.detach(), logits.detach(), rtol=1e-5, atol=1e-5)
    other = net(src, weft.tensor([[1, 5, 7, 7]]))
    np.testing.assert_allclose(other[:, :2].detach(), logits[:, :2].detach(), rtol=1e-5, atol=1e-5)
    steps = net.begin(src)
    for i in range(4):
        now, steps = net.advance(tgt[:, i], steps)
        np.testing.assert_allclose(now.detach(), logits[:, i].detach(), rtol=1e-5, atol=1e-5)


def test_attention_is_what_it_says() -> None:
    weft.manual_seed(0)
    query, memory = weft.randn(2, 3, 4), weft.randn(2, 5, 6)
    padding = weft.tensor([[False] * 5, [False, False, True, True, True]])
    additive = models.BahdanauAttention(4, 6, 7)
    context, weights = additive(query, memory, padding)
    scores = weft.zeros(2, 3, 5)
    for b, q, m in itertools.product(range(2), range(3), range(5)):
        both = additive.query(query[b, q]) + additive.memory(memory[b, m])
        scores[b, q, m] = additive.score(both.tanh())[0]
    scores[1, :, 2:] = -math.inf
    np.testing.assert_allclose(weights.detach(), scores.softmax(-1).detach(), rtol=1e-5, atol=1e-6)
    assert weights[1, :, 2:].abs().max() == 0
    np.testing.assert_allclose(context.detach(), (weights @ memory).detach(), rtol=1e-5, atol=1e-6)
    general = models.LuongAttention(4, 6)
    expected = weft.einsum("bqi,ij,bmj->bqm", query, general.memory.weight, memory)
    expected = expected.masked_fill(padding[:, None], -math.inf).softmax(-1)
    found = general(query, memory, padding)[1]
    np.testing.assert_allclose(found.detach(), expected.detach(), rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match="equal widths, not 4 and 6"):
        models.LuongAttention(4, 6, "dot")


def test_teacher_forcing_feeds_back_what_was_written() -> None:
    weft.manual_seed(0)
    net = make("luong").eval()
    src, tgt = weft.tensor([[3, 4, 5]]), weft.tensor([[1, 5, 4, 3]])
    free = net(src, tgt, teacher_forcing=0.0)
    fed = weft.cat([tgt[:, :1], free.argmax(-1)[:, :-1]], dim=1)
    np.testing.assert_allclose(net(src, fed).detach(), free.detach(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", [models.LSTMClassifier, models.GRUClassifier, models.TextCNN])
def test_classifiers_learn_and_read_no_padding(kind: type) -> None:
    weft.manual_seed(0)
    recurrent = kind is not models.TextCNN
    net = kind(10, 8, 12, 2, padding_idx=0) if recurrent else kind(10, 8, 2, num_filters=8)
    optimizer = weft.optim.Adam(net.parameters(), lr=0.02)
    for _ in range(60):
        tokens = weft.randint(2, 10, (32, 9))
        labels = (tokens == 5).any(dim=1).long()
        loss = nn.functional.cross_entropy(net(tokens), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    net.eval()
    tokens = weft.randint(2, 10, (100, 9))
    accuracy = (net(tokens).argmax(1) == (tokens == 5).any(dim=1)).float().mean()
    assert accuracy > 0.9
    if recurrent:
        lengths = weft.tensor([9, 3])
        padded = tokens[:2].clone()
        padded[1, 3:] = 0
        short = net(tokens[1:2, :3])
        np.testing.assert_allclose(
            net(padded, lengths)[1:].detach(), short.detach(), rtol=1e-5, atol=1e-6
        )


def test_embeddings_begin_with_given_vectors() -> None:
    vectors = weft.randn(10, 4)
    net = models.TextCNN(10, 4, 2, vectors=vectors)
    assert weft.equal(net.embedding.weight, vectors) and net.embedding.weight.requires_grad
    assert net(weft.tensor([[1]])).shape == (1, 2)  # shorter than every window
    with pytest.raises(ValueError, match=r"shape \(10, 4\) do not fit vocab_size 9"):
        models.GRUClassifier(9, 4, 3, 2, vectors=vectors)


def test_a_gpt_of_this_package_learns() -> None:
    net = small_gpt(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    optimizer = weft.optim.Adam(net.parameters(), lr=1e-2)
    text = weft.arange(24)[None] % 5
    for _ in range(40):
        loss = net(text, labels=text).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss < 0.1
    assert net.lm_head.weight is net.transformer.wte.weight
    assert net.generate(text[:, :7], 5)[0, 7:].tolist() == [2, 3, 4, 0, 1]
