"""Translation: a Transformer from German to English, on Multi30k from a local folder.

    python examples/translation.py --data FOLDER [--steps 1800]
    python examples/translation.py --made

FOLDER, or FOLDER/multi30k, holds train.de, train.en, test_2016_flickr.de and test_2016_flickr.en
(or with .gz). After 600 steps, less than one and a half passes over the 29,000 pairs, BLEU is above
0.2 on the 1,000 test sentences. --made needs no files: it translates a made language, English
numerals into digits in reverse, with a BLEU of more than 0.9.
"""

from __future__ import annotations

import argparse
import pathlib
import random
import time

import weft as torch
from weft import nn
from weft.text import data, datasets, models

BATCH, STEPS, GOAL, MADE_GOAL = 64, 600, 0.2, 0.9
UNITS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]


def made_pairs(count: int, fields: list) -> data.Dataset:
    """Sentences such as "three two one" with their digits in reverse."""
    numbers = [[random.randrange(10) for _ in range(random.randint(2, 6))] for _ in range(count)]
    pairs = [(" ".join(UNITS[d] for d in n), " ".join(map(str, reversed(n)))) for n in numbers]
    made = data.Dataset([data.Example.fromlist(pair, fields) for pair in pairs], fields)
    made.sort_key = datasets.TranslationDataset.sort_key
    return made


def load(folder: pathlib.Path | None) -> tuple:
    marks = {"init_token": "<s>", "eos_token": "</s>", "lower": True, "batch_first": True}
    tokenize = "regex" if folder else "whitespace"
    source, target = (data.Field(tokenize=tokenize, **marks) for _ in range(2))
    fields = [("src", source), ("trg", target)]
    if folder is None:
        train, test = made_pairs(4000, fields), made_pairs(200, fields)
    else:
        train, test = datasets.TranslationDataset.splits(
            (".de", ".en"), fields, path=folder, validation=None, test="test_2016_flickr"
        )
    for field in (source, target):
        field.build_vocab(train, min_freq=3)
    return train, test, source.vocab, target.vocab


def bleu(
    net: models.Seq2SeqTransformer, test: data.Dataset, vocab: data.Field, beams: int
) -> float:
    """BLEU of the test set; the longest sentences stand together, so there is little padding."""
    said, right = [], []
    begin, end = vocab.stoi["<s>"], vocab.stoi["</s>"]
    net.eval()
    for batch in data.Iterator(test, 50, sort=True, train=False):
        options = {"max_length": batch.trg.shape[1] + 10}
        if beams > 1:
            found = net.beam(batch.src, begin, end, beams=beams, **options)
        else:
            found = net.greedy(batch.src, begin, end, **options)
        said += [vocab.lookup_tokens(row) for row in found]
    # The iterator sorts the same way again, the longest of each batch first.
    ordered = sorted(test, key=test.sort_key)
    for i in range(0, len(ordered), 50):
        right += [[example.trg] for example in reversed(ordered[i : i + 50])]
    return data.bleu_score(said, right)


def folder_of(data: str) -> pathlib.Path:
    """Where the files are."""
    root = pathlib.Path(data)
    folder = root / "multi30k" if (root / "multi30k").is_dir() else root
    if not list(folder.glob("train.de*")):
        raise SystemExit(
            f"no train.de in {folder}: --data FOLDER says where, --made needs no files"
        )
    return folder


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default="data")
    parser.add_argument("--made", action="store_true", help="translate the made language")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--beams", type=int, default=1)
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    random.seed(options.seed)
    folder = None if options.made else folder_of(options.data)
    train, test, source, target = load(folder)
    batches = data.BucketIterator(train, BATCH, sort_within_batch=True, repeat=True)
    steps = options.steps
    width = 128 if folder else 64
    net = models.Seq2SeqTransformer(
        len(source), len(target), width, 4, 2, 2, 4 * width, padding_idx=1, norm_first=True
    )
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-3, betas=(0.9, 0.98))
    warm = max(1, min(300, steps // 4))
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda i: min((i + 1) / warm, max(0.05, (steps - i) / max(1, steps - warm)))
    )
    start = time.perf_counter()
    for step, batch in enumerate(batches, 1):
        logits = net(batch.src, batch.trg[:, :-1])
        loss = nn.functional.cross_entropy(
            logits.flatten(0, 1), batch.trg[:, 1:].flatten(), ignore_index=1, label_smoothing=0.1
        )
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 50 == 0 or step <= 6:
            print(f"step {step} loss {loss.item():.5f} ({time.perf_counter() - start:.0f} s)")
        if step == steps:
            break
    if steps < 100:
        test = data.Dataset(test.examples[:20], test.fields)
        test.sort_key = train.sort_key
    result = bleu(net, test, target, options.beams)
    goal = GOAL if folder else MADE_GOAL
    print(f"result: {result:.3f} BLEU of the test sentences (goal {goal})")
    if steps >= STEPS and result < goal:
        raise SystemExit("the goal was missed")


if __name__ == "__main__":
    main()
