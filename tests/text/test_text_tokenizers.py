"""Tokenisers: Hugging Face's numbers, round trips, files."""

from __future__ import annotations

import itertools
import json
import pathlib

import pytest
import text_numbers as table
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.text import tokenizers, transforms
from weft.text.tokenizers.merging import learn_merges, merge_all

PRETRAINED = table.numbers()["pretrained"]
TEXTS = [*table.LINES, *table.STRANGE]


def stored_bpe() -> tokenizers.ByteLevelBPE:
    stored = PRETRAINED["bpe"]
    return tokenizers.ByteLevelBPE(stored["vocab"], stored["merges"])


def test_byte_level_bpe_encodes_as_tokenizers_does() -> None:
    bpe = stored_bpe()
    for text, ids in zip(TEXTS, PRETRAINED["bpe"]["ids"], strict=True):
        assert bpe.encode(text) == ids, text
        assert bpe.decode(ids) == text


def test_byte_level_bpe_learns_what_tokenizers_learns() -> None:
    bpe = tokenizers.ByteLevelBPE.train(table.CORPUS, table.BPE_SIZE)
    assert [list(merge) for merge in bpe.merges] == PRETRAINED["bpe"]["merges"]
    assert bpe.vocab == PRETRAINED["bpe"]["vocab"]


BPE = stored_bpe()


@settings(max_examples=60, deadline=None)
@given(st.text())
def test_any_text_comes_back(text: str) -> None:
    assert BPE.decode(BPE.encode(text)) == text


def test_bpe_files_and_special_tokens(tmp_path: pathlib.Path) -> None:
    end = "<|endoftext|>"
    bpe = tokenizers.ByteLevelBPE.train(table.CORPUS, 300, special_tokens=[end])
    assert bpe.vocab[end] == 0
    bpe.save(tmp_path)
    again = tokenizers.ByteLevelBPE.from_folder(tmp_path)
    text = f"the end{end}lower{end}"
    assert again.encode(text) == bpe.encode(text) and again.encode(text).count(0) == 2
    assert again.decode(again.encode(text)) == text
    assert again.decode(again.encode(text), skip_special_tokens=True) == "the endlower"
    files = str(tmp_path / "vocab.json"), str(tmp_path / "merges.txt")
    spelled = transforms.GPT2BPETokenizer(*files)
    assert spelled("lower") == [str(i) for i in bpe.encode("lower")]
    assert spelled.decode(spelled("lower low")) == "lower low"
    assert transforms.GPT2BPETokenizer(*files, return_tokens=True)(["a é"]) == [
        [bpe.decode([i]) for i in bpe.encode("a é")]
    ]
    (tmp_path / "merges.txt").write_text("a b c\n")
    with pytest.raises(ValueError, match="line 1: a merge is two symbols"):
        tokenizers.ByteLevelBPE.from_folder(tmp_path)
    (tmp_path / "vocab.json").write_text(json.dumps({"a": "b"}))
    with pytest.raises(ValueError, match="not a vocabulary"):
        tokenizers.ByteLevelBPE.from_folder(tmp_path)
    with pytest.raises(ValueError, match="no number 999999"):
        bpe.decode([999999])
    with pytest.raises(ValueError, match="vocab_size 10 is less than the 256"):
        tokenizers.ByteLevelBPE.train([], 10)


def test_wordpiece_encodes_as_tokenizers_does() -> None:
    stored = PRETRAINED["wordpiece"]
    pieces = tokenizers.WordPiece(stored["vocab"])
    cased = tokenizers.WordPiece(stored["vocab"], do_lower_case=False)
    for i, text in enumerate(TEXTS):
        assert pieces.encode(text) == stored["ids"][i], text
    assert [cased.encode(text) for text in TEXTS] == stored["cased"]
    assert pieces.encode(table.LINES[3], table.LINES[5]) == stored["pair"]


def test_a_learned_wordpiece_spells_its_corpus(tmp_path: pathlib.Path) -> None:
    pieces = tokenizers.WordPiece.train(table.CORPUS, table.PIECES_SIZE)
    # Among pairs that are equally frequent tokenizers takes another at each run.
    assert len(pieces) == len(PRETRAINED["wordpiece"]["vocab"]) == table.PIECES_SIZE
    assert {"the", "cat", "sat"} <= set(pieces.itos)
    words = [token for text in table.LINES for token in pieces.tokenize(text)]
    assert pieces.unk_token not in words
    pieces.save(tmp_path / "vocab.txt")
    again = tokenizers.WordPiece.from_file(tmp_path / "vocab.txt")
    assert again.itos == pieces.itos
    assert again.decode(again.encode("the cat sat today")) == "the cat sat today"
    batch = again(["the cat", "a"], ["sat", "ran here"])
    assert batch["input_ids"].shape == batch["attention_mask"].shape
    assert batch["attention_mask"].sum(1).tolist() == [
        len(again.encode("the cat", "sat")), len(again.encode("a", "ran here")),
    ]  # fmt: skip
    assert batch["token_type_ids"][0].max() == 1 and batch["token_type_ids"][0, 0] == 0
    bert = transforms.BERTTokenizer(str(tmp_path / "vocab.txt"), return_tokens=True)
    assert bert(["the cat"]) == [["the", "cat"]]
    assert again.tokenize("the [MASK] sat") == ["the", "[MASK]", "sat"]
    with pytest.raises(ValueError, match=r"no '\[UNK\]'"):
        tokenizers.WordPiece(["a"])


def test_learning_takes_the_most_frequent_pair_each_time() -> None:
    """Against counting anew before each step."""
    words = {
        tuple("hugging"): 3,
        tuple("hug"): 5,
        tuple("pun"): 4,
        tuple("gun"): 4,
        tuple("aaaa"): 2,
    }
    alphabet = sorted({c for word in words for c in word})
    merges = learn_merges(words, alphabet, 8, min_frequency=2)
    order = {symbol: i for i, symbol in enumerate(alphabet)}
    ranks: dict[tuple[str, str], int] = {}
    for merge in merges:
        counts: dict[tuple[str, str], int] = {}
        for word, times in words.items():
            parts = merge_all(word, ranks)
            for pair in itertools.pairwise(parts):
                counts[pair] = counts.get(pair, 0) + times
        best = max(counts, key=lambda p: (counts[p], -order[p[0]], -order[p[1]]))
        assert merge == best
        ranks[merge] = len(ranks)
        order.setdefault(merge[0] + merge[1], len(order))


def test_tokenizers_by_name() -> None:
    get = tokenizers.get_tokenizer
    line = "It's a  Test."
    assert get(None)(line) == get("whitespace")(line) == ["It's", "a", "Test."]
    assert get("basic_english")(line) == ["it", "'", "s", "a", "test", "."]
    assert get("regex")(line) == ["It", "'", "s", "a", "Test", "."]
    assert get("char")("ab") == ["a", "b"] and get(str.upper)("a") == "A"
    assert tokenizers.regex_tokenizer("[a-z]+", lower=True)(line) == ["it", "s", "a", "test"]
    with pytest.raises(ValueError, match="unknown tokenizer 'french'"):
        get("french")
    with pytest.raises(ValueError, match="for English"):
        get("basic_english", language="de")
    with pytest.raises(ValueError, match="a name, a function or None, not 3"):
        get(3)


def test_a_missing_tokenizer_library_names_what_needs_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "spacy", None)
    with pytest.raises(
        ModuleNotFoundError, match=r"'spacy', which is not installed; 'basic_english'"
    ):
        tokenizers.get_tokenizer("spacy")
