"""Numbers of torchtext and transformers that weft.text is compared with, and how they are made.

``python tests/text/text_numbers.py`` in an environment with torchtext 0.6.0 (which runs beside
today's PyTorch, being all Python), transformers and tokenizers writes ``numbers.json``; the tests
compute the same from weft. Both sides run the functions below.
"""

from __future__ import annotations

import json
import pathlib
import random
import tempfile
from collections import Counter
from typing import Any

import numpy as np

PATH = pathlib.Path(__file__).with_name("numbers.json")

LINES = [
    "It's the 3rd time (or 4th); \"quoted\", isn't it?",
    "A line<br />with a break: and... dots!",
    "  Tabs\tand  spaces ",
    "the cat sat on the mat .",
    "the dog sat on the log , the cat ran .",
    "a bird sang",
    "no dog and no cat sat here today !",
    "the the the end",
]
STRANGE = [
    "Hello world, it's 2026! They'll say: we've won 10,000€...",
    "  leading and   many spaces  \n\n new lines\t",
    "naïve Café Ångström ÀÉÎ ß ǅ ",
    "中文 字符 and 日本語のテキスト, 한국어",
    "x² ½ Ⅷ ٣٤ 😀👍🏽 e\u0301 \u200b zero\u00a0width",
    "under_score snake_case __init__ a'b 'tis 'LL don't",
    "",
    "\x00\x01 control \ufffd replaced",
]


def numbers() -> dict[str, Any]:
    return json.loads(PATH.read_text())


def plain(value: Any) -> Any:
    """Tensors and tuples as lists."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


# --- the older interface ---------------------------------------------------------------------


def _dataset(data: Any, **options: Any) -> tuple[Any, Any, Any]:
    text, label = data.Field(lower=True, **options), data.LabelField()
    fields = [("text", text), ("label", label)]
    rows = [(line, "long" if len(line) > 25 else "short") for line in LINES * 3]
    examples = [data.Example.fromlist(list(row), fields) for row in rows]
    made = data.Dataset(examples, fields)
    made.sort_key = lambda x: len(x.text)
    text.build_vocab(made, min_freq=2)
    label.build_vocab(made)
    return made, text, label


def fields(data: Any) -> dict[str, Any]:
    rows = [["a", "b", "c"], ["d"], ["a", "e", "f", "g", "a"]]
    found = {}
    for name, options in {
        "plain": {},
        "marks": {"init_token": "<s>", "eos_token": "</s>", "include_lengths": True},
        "fixed": {"fix_length": 4, "eos_token": "</s>", "batch_first": True},
        "first": {"pad_first": True, "include_lengths": True, "pad_token": "*"},
        "truncated": {"fix_length": 3, "truncate_first": True, "include_lengths": True},
        "lists": {"tokenize": list, "stop_words": ["a"]},
    }.items():
        field = data.Field(**options)
        field.build_vocab(rows, max_size=5)
        found[name] = [field.vocab.itos, plain(field.pad(rows)), plain(field.process(rows))]
    for name, options in {
        "nested": {"init_token": "<s>", "eos_token": "</s>", "include_lengths": True},
        "nested fixed": {"fix_length": 3, "pad_first": True, "include_lengths": True},
    }.items():
        inner = data.Field(pad_token="<c>", init_token="<w>", eos_token="</w>", tokenize=list)
        nested = data.NestedField(inner, **options)
        words = [nested.preprocess("john loves mary"), nested.preprocess("mary cries")]
        nested.build_vocab([words[0]], [words[1]])
        found[name] = [nested.vocab.itos, plain(nested.pad(words)), plain(nested.process(words))]
    numbers_field = data.Field(sequential=False, use_vocab=False)
    found["numbers"] = plain(numbers_field.process(["3", 4, "5"]))
    return found


def vocabularies(vocab: Any) -> dict[str, Any]:
    counter = Counter(["b", "a", "a", "c", "c", "c", "d", "d", "d", "<unk>", "<unk>", "e"])
    found = {}
    for name, options in {
        "default": {},
        "frequent": {"min_freq": 2},
        "small": {"max_size": 2, "specials": ["<pad>", "<unk>"]},
        "last": {"max_size": 3, "specials_first": False},
    }.items():
        made = vocab.Vocab(counter, **options)
        found[name] = [made.itos, made["c"], made["never"], len(made), made.stoi["zzz"]]
    return found


def vectors(torch: Any, vocab: Any) -> list[Any]:
    """Word vectors of a file with a header, looked up and put into a vocabulary."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "small.vec")
        path.write_text("3 3\nthe 0.5 1 -2\ncat 1e-1 2 3\nDog 4 5 6.25\n", encoding="utf-8")
        found = vocab.Vectors(path.name, cache=folder)
        ones = vocab.Vectors(path.name, cache=folder, unk_init=_ones)
        made = vocab.Vocab(Counter(["the", "cat", "rat"]), vectors=[found, ones])
        tokens = ["the", "dog", "Dog"]
        return [
            found.itos,
            plain(found.get_vecs_by_tokens(tokens)),
            plain(found.get_vecs_by_tokens(["THE", "DOG", "Cat"], lower_case_backup=True)),
            plain(made.vectors),
        ]


def _ones(tensor: Any) -> Any:
    return tensor.fill_(1)


def iterators(data: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, kind, options in (
        ("bucket", data.BucketIterator, {}),
        ("bucket sorted", data.BucketIterator, {"sort_within_batch": True}),
        ("plain", data.Iterator, {}),
        ("plain sorted", data.Iterator, {"sort": True, "sort_within_batch": False}),
        ("test", data.BucketIterator, {"train": False}),
        ("tokens", data.BucketIterator, {"batch_size_fn": lambda x, n, all: all + len(x.text)}),
    ):
        random.seed(7)
        made, _, _ = _dataset(data, include_lengths=True)
        size = 24 if name == "tokens" else 5
        iterator = kind(made, batch_size=size, **options)
        found[name] = [
            [[plain(b.text), plain(b.label), len(b)] for b in iterator] for _ in range(2)
        ]
    return found


def splits(data: Any) -> list[Any]:
    made, _, _ = _dataset(data)
    random.seed(3)
    state = random.getstate()
    parts = [made.split(0.6, random_state=state), made.split([2, 1, 1], random_state=state)]
    return [[[" ".join(x.text) for x in part] for part in several] for several in parts]


def tables(data: Any) -> list[Any]:
    """Files of rows."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "rows")
        for kind, text in {
            "csv": 'label,text\n1,"a ""quoted"" cell, here"\n0,plain cell\n',
            "tsv": "label\ttext\n1\ta b\n0\tc d\n",
            "json": '{"label": 1, "in": {"text": "a b"}}\n{"label": 0, "in": {"text": "c"}}\n',
        }.items():
            path.write_text(text, encoding="utf-8")
            words = data.Field()
            label = data.Field(sequential=False, use_vocab=False)
            by_name = {"label": ("y", label), "in.text" if kind == "json" else "text": ("x", words)}
            columns = [[by_name, {}]]
            if kind != "json":
                columns.append([[("y", label), ("x", words)], {"skip_header": True}])
                columns.append([[("y", None), ("x", words)], {"skip_header": True}])
            for fields_of, options in columns:
                made = data.TabularDataset(str(path), kind, fields_of, **options)
                found.append([vars(example) for example in made])
    return found


def language_model(data: Any, datasets: Any) -> list[Any]:
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "text")
        path.write_text("\n".join(LINES), encoding="utf-8")
        field = data.Field(lower=True)
        made = datasets.LanguageModelingDataset(str(path), field)
        field.build_vocab(made)
        iterator = data.BPTTIterator(made, batch_size=3, bptt_len=4)
        return [len(iterator), [[plain(b.text), plain(b.target)] for b in iterator]]


def translation(data: Any, datasets: Any) -> list[Any]:
    with tempfile.TemporaryDirectory() as folder:
        for name, lines in {"train": LINES, "val": LINES[:3], "test": LINES[::-1]}.items():
            pathlib.Path(folder, f"{name}.en").write_text("\n".join(lines), encoding="utf-8")
            turned = [line[::-1] if i != 2 else "" for i, line in enumerate(lines)]
            pathlib.Path(folder, f"{name}.de").write_text("\n".join(turned), encoding="utf-8")
        parts = datasets.TranslationDataset.splits(
            (".en", ".de"), (data.Field(), data.Field()), path=folder
        )
        return [[[x.src, x.trg, int(part.sort_key(x))] for x in part] for part in parts]


def scores(data: Any) -> list[float]:
    """BLEU of some made translations."""
    draw = random.Random(0)
    words = ["the", "a", "cat", "dog", "sat", "ran", "on", "mat", "."]
    sentence = lambda: [draw.choice(words) for _ in range(draw.randint(1, 12))]
    found = []
    for weights in ([0.25] * 4, [0.5, 0.5], [0.2, 0.3, 0.5]):
        said = [sentence() for _ in range(40)]
        right = [[sentence() for _ in range(draw.randint(1, 3))] for _ in said]
        for i in range(0, 40, 2):  # some are nearly right
            said[i] = right[i][0][1:] or ["the"]
        found.append(data.metrics.bleu_score(said, right, len(weights), weights))
    return found


def small_things(data: Any) -> dict[str, Any]:
    tokenize = data.utils.get_tokenizer("basic_english")
    return {
        "tokens": [tokenize(line) for line in [*LINES, *STRANGE]],
        "ngrams": list(data.utils.ngrams_iterator(["a", "b", "c", "d"], 3)),
        "keys": [data.utils.interleave_keys(a, b) for a, b in ((0, 0), (3, 5), (1000, 77))],
    }


def older(torch: Any, data: Any, vocab: Any, datasets: Any) -> dict[str, Any]:
    return {
        "fields": fields(data),
        "vocabularies": vocabularies(vocab),
        "vectors": vectors(torch, vocab),
        "iterators": iterators(data),
        "splits": splits(data),
        "tables": tables(data),
        "language model": language_model(data, datasets),
        "translation": translation(data, datasets),
        "scores": scores(data),
        "small things": small_things(data),
    }


# --- pretrained models -----------------------------------------------------------------------

GPT2 = {
    "vocab_size": 40, "n_positions": 24, "n_embd": 24, "n_layer": 2, "n_head": 3, "bos_token_id": 0,
    "eos_token_id": 0,
}  # fmt: skip
GPT2_MODELS = {"gpt2": {}, "scaled": {"scale_attn_by_inverse_layer_idx": True, "n_inner": 40}}
BERT = {
    "vocab_size": 40, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3,
    "intermediate_size": 40, "max_position_embeddings": 24, "num_labels": 3,
}  # fmt: skip
TOKENS = [[5, 7, 11, 3, 30, 2, 9], [1, 38, 0, 4, 4, 12, 20]]
SEEN_BEHIND = [[1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0, 0]]
SEEN_BEFORE = [[1, 1, 1, 1, 1, 1, 1], [0, 0, 1, 1, 1, 1, 1]]
TYPES = [[0, 0, 0, 1, 1, 1, 1], [0, 0, 1, 1, 0, 0, 0]]


def values(name: str, shape: list[int]) -> np.ndarray:
    """The made values of a parameter."""
    start = sum(name.encode()) % 97
    wave = np.sin((np.arange(int(np.prod(shape))) * 0.37 + start) * (1 + start / 50))
    if name.endswith("bias"):
        wave *= 0.1
    elif "ln_" in name or "LayerNorm" in name:
        wave = 1 + 0.1 * wave
    else:
        wave *= 0.3
    return wave.reshape(shape).astype(np.float32)


def run_gpt2(torch: Any, net: Any) -> dict[str, Any]:
    tokens = torch.tensor(TOKENS)
    with torch.no_grad():
        out = net(tokens, labels=tokens)
        seen = net(tokens, attention_mask=torch.tensor(SEEN_BEHIND)).logits
        written = net.generate(tokens, max_new_tokens=6, do_sample=False, pad_token_id=39)
        seen_before = torch.tensor(SEEN_BEFORE)
        padded = net.generate(
            tokens, attention_mask=seen_before, max_new_tokens=6, do_sample=False, pad_token_id=39
        )
    return {
        "logits": plain(out.logits[:, :, :4]),
        "loss": float(out.loss),
        "seen": plain(seen[1, :4, :4]),
        "written": plain(written),
        "padded": plain(padded),
    }


def run_bert(torch: Any, kind: str, net: Any) -> dict[str, Any]:
    tokens, types = torch.tensor(TOKENS), torch.tensor(TYPES)
    seen = torch.tensor(SEEN_BEHIND)
    inputs = {"attention_mask": seen, "token_type_ids": types}
    with torch.no_grad():
        if kind == "BertModel":
            out = net(tokens, **inputs)
            return {
                "features": plain(out.last_hidden_state[:, :4, :4]),
                "pooled": plain(out.pooler_output[:, :6]),
            }
        labels = torch.tensor([2, 0]) if kind.endswith("Classification") else tokens
        out = net(tokens, labels=labels, **inputs)
        logits = out.logits if kind.endswith("Classification") else out.logits[:, :4, :4]
        return {"logits": plain(logits), "loss": float(out.loss)}


# --- tokenisers ------------------------------------------------------------------------------

CORPUS = [*LINES, *STRANGE, "lower lowest low slow slower", "newer newest new anew"] * 2
BPE_SIZE, PIECES_SIZE = 340, 230


def made_by_transformers() -> dict[str, Any]:
    import safetensors.numpy
    import tokenizers
    import torch
    import transformers

    found: dict[str, Any] = {}
    kinds = {f"{n} GPT2LMHeadModel": ({**GPT2, **o}, "GPT2") for n, o in GPT2_MODELS.items()}
    for kind in ("BertModel", "BertForMaskedLM", "BertForSequenceClassification"):
        kinds[f"bert {kind}"] = (BERT, "Bert")
    for name, (sizes, family) in kinds.items():
        kind = name.split()[1]
        config = getattr(transformers, f"{family}Config")(**sizes)
        config._attn_implementation = "eager"
        net = getattr(transformers, kind)(config).eval()
        with torch.no_grad():
            for key, parameter in net.named_parameters():
                parameter.copy_(torch.from_numpy(values(key, list(parameter.shape))))
        with tempfile.TemporaryDirectory() as folder:
            net.save_pretrained(folder)
            weights = safetensors.numpy.load_file(f"{folder}/model.safetensors")
            stated = json.loads(pathlib.Path(folder, "config.json").read_text())
        run = run_gpt2(torch, net) if family == "GPT2" else run_bert(torch, kind, net)
        shapes = {key: list(value.shape) for key, value in weights.items()}
        found[name] = {"config": stated, "shapes": shapes, "results": run}
    logits = torch.from_numpy(values("logits", [3, 12])) * 10
    warp = transformers.generation.logits_process
    for p in (0.1, 0.5, 0.9, 0.99):
        kept = warp.TopPLogitsWarper(p)(None, logits).isfinite()
        found[f"top_p {p}"] = plain(kept)
    for k in (1, 5):
        found[f"top_k {k}"] = plain(warp.TopKLogitsWarper(k)(None, logits).isfinite())
    bpe = tokenizers.ByteLevelBPETokenizer()
    bpe.train_from_iterator(CORPUS, BPE_SIZE, min_frequency=2, show_progress=False)
    model = json.loads(bpe.to_str())["model"]
    found["bpe"] = {
        "vocab": model["vocab"],
        "merges": [m if isinstance(m, list) else m.split(" ") for m in model["merges"]],
        "ids": [bpe.encode(text).ids for text in [*LINES, *STRANGE]],
    }
    pieces = tokenizers.BertWordPieceTokenizer()
    pieces.train_from_iterator(CORPUS, PIECES_SIZE, min_frequency=2, show_progress=False)
    vocab = sorted(pieces.get_vocab().items(), key=lambda pair: pair[1])
    pieces = tokenizers.BertWordPieceTokenizer(dict(vocab))
    cased = tokenizers.BertWordPieceTokenizer(dict(vocab), lowercase=False)
    found["wordpiece"] = {
        "vocab": [token for token, _ in vocab],
        "ids": [pieces.encode(text).ids for text in [*LINES, *STRANGE]],
        "cased": [cased.encode(text).ids for text in [*LINES, *STRANGE]],
        "pair": pieces.encode(LINES[3], LINES[5]).ids,
    }
    return found


def main() -> None:
    import tokenizers
    import torch
    import torchtext
    import transformers

    packages = (torchtext, transformers, tokenizers, torch)
    text = ", ".join(f"{p.__name__} {p.__version__}" for p in packages)
    found = {
        "source": text,
        "older": older(torch, torchtext.data, torchtext.vocab, torchtext.datasets),
        "pretrained": made_by_transformers(),
    }
    PATH.write_text(json.dumps(found, ensure_ascii=False, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
