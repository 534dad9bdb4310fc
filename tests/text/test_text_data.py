"""torchtext's older and newer interfaces: fields, iterators, vocabularies, datasets, transforms."""

from __future__ import annotations

import doctest
import gzip
import importlib
import json
import pathlib
import pickle
import pkgutil
import random
import tarfile
from collections import Counter, OrderedDict

import pytest
import text_numbers as table

import weft
from weft import text
from weft.text import data, datasets, functional, transforms, vocab
from weft.utils.data import DataLoader

NUMBERS = table.numbers()


def test_the_numbers_name_their_source() -> None:
    assert "torchtext 0.6.0" in NUMBERS["source"] and "transformers" in NUMBERS["source"]


def test_the_older_interface_gives_what_torchtext_gives() -> None:
    found = json.loads(json.dumps(table.older(weft, data, vocab, datasets)))
    expected = NUMBERS["older"]
    # torchtext adds up BLEU in float32.
    assert found.pop("scores") == pytest.approx(expected.pop("scores"), rel=1e-6)
    for name in expected:
        assert found[name] == expected[name], name


def test_examples_in_docstrings_of_text() -> None:
    attempted = 0
    for module in pkgutil.walk_packages(text.__path__, "weft.text."):
        results = doctest.testmod(importlib.import_module(module.name))
        assert not results.failed, module.name
        attempted += results.attempted
    assert attempted > 40


# --- vocabularies ----------------------------------------------------------------------------


def test_a_new_vocabulary_looks_up_both_ways() -> None:
    made = vocab.vocab(OrderedDict(b=3, a=2, c=1), min_freq=2, specials=["<unk>", "<pad>"])
    assert made.get_itos() == ["<unk>", "<pad>", "b", "a"] and len(made) == 4
    assert "a" in made and "c" not in made and made.get_default_index() is None
    with pytest.raises(RuntimeError, match="Token c not found and default index is not set"):
        made["c"]
    made.set_default_index(made["<unk>"])
    assert made(["a", "c"]) == made.lookup_indices(["a", "c"]) == [3, 0]
    assert made.lookup_tokens([2, 3]) == ["b", "a"] and made.get_stoi()["a"] == 3
    with pytest.raises(RuntimeError, match="Specified index 4 is out of bounds"):
        made.lookup_token(4)
    made.insert_token("new", 1)
    made.append_token("last")
    assert made.get_itos() == ["<unk>", "new", "<pad>", "b", "a", "last"]
    assert made["a"] == 4 and made["never"] == 0
    with pytest.raises(RuntimeError, match="already exists in the Vocab with index: 3"):
        made.insert_token("b", 0)
    with pytest.raises(RuntimeError, match="comes again"):
        vocab.Vocab.of_tokens(["a", "a"])
    again = pickle.loads(pickle.dumps(made))
    assert again == made and again["never"] == 0


def test_building_a_vocabulary_sorts_and_cuts() -> None:
    lines = ["b a c", "c b", "c <pad>"]
    build = lambda **options: vocab.build_vocab_from_iterator(
        (line.split() for line in lines), **options
    ).get_itos()
    assert build() == ["c", "b", "<pad>", "a"]
    assert build(min_freq=2, specials=["<pad>"], special_first=False) == ["c", "b", "<pad>"]
    assert build(specials=["<unk>"], max_tokens=3) == ["<unk>", "c", "b"]
    with pytest.raises(AssertionError, match="entirely special tokens"):
        build(specials=["<unk>"], max_tokens=1)


def test_an_old_vocabulary_keeps_unknown_words_out() -> None:
    made = vocab.Vocab(Counter(["a", "a", "b"]))
    assert made.stoi["never"] == made["never"] == 0 and "never" not in made.stoi
    assert made.freqs["a"] == 2 and made.unk_index == 0
    labels = vocab.Vocab(Counter(["x", "y"]), specials=[])
    with pytest.raises(KeyError, match="'z' is not in the vocabulary"):
        labels.stoi["z"]


def test_vectors_come_from_local_files_only(tmp_path: pathlib.Path) -> None:
    lines = "the 1 2\ncat 3 4\n"
    with gzip.open(tmp_path / "small.txt.gz", "wt") as file:
        file.write(lines)
    assert vocab.Vectors(str(tmp_path / "small.txt.gz"), max_vectors=1).itos == ["the"]
    (tmp_path / "glove.6B.50d.txt").write_text(lines)
    made = vocab.Vocab(Counter(["cat"]), vectors="glove.6B.50d", vectors_cache=str(tmp_path))
    assert made.vectors.tolist() == [[0, 0], [0, 0], [3, 4]]
    made.set_vectors({"cat": 1}, weft.tensor([[1.0], [7.0]]), 1)
    assert made.vectors.tolist() == [[0], [0], [7]]
    with pytest.raises(FileNotFoundError, match="downloads nothing"):
        vocab.GloVe("6B", 100, cache=str(tmp_path))
    (tmp_path / "bad").write_text("the 1 2\ncat 3\ndog 1 2 3\n")
    with pytest.raises(RuntimeError, match="line 3: the vector of 'dog' has 3 dimensions"):
        vocab.Vectors("bad", cache=str(tmp_path))
    (tmp_path / "worse").write_text("the 1 two\n")
    with pytest.raises(ValueError, match="line 1: not a word and its numbers"):
        vocab.Vectors("worse", cache=str(tmp_path))


# --- fields and iterators --------------------------------------------------------------------


def make_dataset(**options: object) -> tuple[data.Dataset, data.Field]:
    field = data.Field(**options)
    fields = [("text", field)]
    rows = [data.Example.fromlist([line], fields) for line in table.LINES]
    made = data.Dataset(rows, fields)
    field.build_vocab(made)
    return made, field


def test_an_iterator_goes_on_where_its_state_says() -> None:
    made, _ = make_dataset()
    options = {"batch_size": 2, "sort_key": lambda x: len(x.text), "sort_within_batch": True}
    random.seed(0)
    first = data.BucketIterator(made, **options)
    expected = [batch.text.tolist() for batch in first]
    random.seed(0)
    second = data.BucketIterator(made, **options)
    begun = iter(second)
    assert [next(begun).text.tolist() for _ in range(2)] == expected[:2]
    state = second.state_dict()
    random.seed(99)
    third = data.BucketIterator(made, **options)
    third.load_state_dict(state)
    assert [batch.text.tolist() for batch in third] == expected[2:]


def test_mistakes_with_fields_say_what_to_do(tmp_path: pathlib.Path) -> None:
    made, field = make_dataset()
    with pytest.raises(ValueError, match=r"sort_key=lambda x: len\(x.text\)"):
        list(data.BucketIterator(made, batch_size=2, sort_within_batch=True))
    with pytest.raises(AttributeError, match=r"call build_vocab\(dataset\)"):
        data.Field().process([["a"]])
    with pytest.raises(AttributeError, match="no attribute or column 'label'"):
        _ = made.label
    with pytest.raises(ValueError, match="include_lengths"):
        data.Field(include_lengths=True).numericalize([["a"]])
    (tmp_path / "rows.csv").write_text("x,y\n1,2\n")
    with pytest.raises(ValueError, match=r"no column 'z'; it has \['x', 'y'\]"):
        data.TabularDataset(tmp_path / "rows.csv", "csv", {"z": ("z", field)})
    with pytest.raises(ValueError, match="format is 'csv', 'tsv' or 'json', not 'xml'"):
        data.TabularDataset(tmp_path / "rows.csv", "xml", [])
    with pytest.raises(FileNotFoundError, match=r"folder '.*multi30k.*', and .* downloads nothing"):
        datasets.Multi30k.splits((".de", ".en"), (field, field), root=str(tmp_path))


def test_fields_are_pickled_with_their_vocabulary() -> None:
    made, field = make_dataset(tokenize="basic_english", lower=True)
    again = pickle.loads(pickle.dumps(field))
    assert again.vocab.itos == field.vocab.itos
    assert again.preprocess("It's") == ["it", "'", "s"]
    batch = next(iter(data.Iterator(made, batch_size=2, shuffle=False)))
    assert len(batch) == 2 and "[.text]:[torch.LongTensor of size" in repr(batch)
    made.filter_examples(["text"])
    assert made[3].text == table.LINES[3].split()


def test_a_reversible_field_gives_text_back() -> None:
    field = data.ReversibleField(init_token="<s>", eos_token="</s>")
    rows = [field.preprocess("the cat sat"), field.preprocess("a dog")]
    field.build_vocab(rows)
    assert field.reverse(field.process(rows)) == ["the cat sat", "a dog"]


def test_bucketing_and_padding_for_data_loaders() -> None:
    lengths = [3, 9, 4, 8, 1, 2, 7, 5, 6]
    items = [([n] * n, n % 2) for n in lengths]
    sampler = data.BucketBatchSampler(
        lengths, batch_size=2, generator=weft.Generator().manual_seed(0)
    )
    loader = DataLoader(items, batch_sampler=sampler, collate_fn=data.PadCollate(with_lengths=True))
    batches = list(loader)
    assert len(batches) == len(sampler) == 5
    seen = sorted(int(n) for _, sizes, _ in batches for n in sizes)
    assert seen == sorted(lengths)
    for tokens, sizes, labels in batches:
        assert int(sizes.max() - sizes.min()) <= 1
        assert tokens.shape == (len(sizes), int(sizes.max()))
        assert labels.tolist() == [int(n) % 2 for n in sizes]
        assert ((tokens != 0).sum(1) == sizes).all()
    crowded = data.BucketBatchSampler(lengths, batch_size=8, max_tokens=12, shuffle=False)
    for places in crowded:
        assert len(places) * max(lengths[i] for i in places) <= 12
    short = data.BucketBatchSampler(lengths, batch_size=2, drop_last=True, shuffle=False)
    assert len(list(short)) == len(short) == 4


# --- datasets --------------------------------------------------------------------------------


def test_pairs_of_class_and_text(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "datasets" / "AG_NEWS"
    folder.mkdir(parents=True)
    (folder / "train.csv").write_text('"3","Wall St.","Up, ""again"""\n"1","World","news"\n')
    (folder / "test.csv").write_text('"1","More","news"\n"3","x","y"\n')
    train, test = datasets.AG_NEWS(root=str(tmp_path))
    assert list(train) == list(train) == [(3, 'Wall St. Up, "again"'), (1, "World news")]
    assert len(test) == 2 and len(data.to_map_style_dataset(test)) == 2
    assert next(iter(datasets.AG_NEWS(str(tmp_path), "test"))) == (1, "More news")
    one, two = datasets.DATASETS["AG_NEWS"](root=str(tmp_path), ngrams=2)
    assert one.get_labels() == {0, 2} and one.get_vocab()["wall st"] > 1
    label, tokens = two[0]
    assert label == 0 and tokens.tolist() == [0, one.get_vocab()["news"], 0]
    assert len(datasets.AG_NEWS(root=str(tmp_path), ngrams=1)[0]) == 2
    with pytest.raises(ValueError, match=r"one or several of \('train', 'test'\), not 'valid'"):
        datasets.AG_NEWS(str(tmp_path), split="valid")
    with pytest.raises(FileNotFoundError, match=r"DBpedia: found none of 'train.csv'"):
        datasets.DBpedia(str(tmp_path))
    (folder / "test.csv").write_text("label,text\n")
    with pytest.raises(ValueError, match="row 1: begins with no class"):
        list(datasets.AG_NEWS(str(tmp_path), "test"))


def test_reviews_in_folders(tmp_path: pathlib.Path) -> None:
    for part in ("train", "test"):
        for label in ("pos", "neg"):
            folder = tmp_path / "imdb" / "aclImdb" / part / label
            folder.mkdir(parents=True)
            for i in range(2):
                (folder / f"{i}.txt").write_text(f"A {label} film of {part}, number {i}.")
    words, label = data.Field(tokenize="basic_english"), data.LabelField()
    train, test = datasets.IMDB.splits(words, label, root=str(tmp_path))
    assert [x.label for x in train] == ["pos", "pos", "neg", "neg"]
    assert train[0].text[:3] == ["a", "pos", "film"] and len(test) == 4
    pairs = list(datasets.IMDB(root=str(tmp_path), split="train"))
    assert pairs[0] == (1, "A neg film of train, number 0.") and pairs[-1][0] == 2
    iterators = datasets.IMDB.iters(batch_size=2, root=str(tmp_path))
    assert [len(list(iterator)) for iterator in iterators] == [2, 2]


def test_two_languages_in_both_interfaces(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "multi30k"
    folder.mkdir()
    for prefix in ("train", "val", "test_2016_flickr"):
        for language, sentence in (("de", "Ein Hund."), ("en", "A dog.")):
            with gzip.open(folder / f"{prefix}.{language}.gz", "wt", encoding="utf-8") as file:
                file.write(f"{sentence}\n{prefix}\n")
    train, _, test = datasets.Multi30k(root=str(tmp_path))
    assert list(train) == [("Ein Hund.", "A dog."), ("train", "train")]
    assert len(test) == 2
    valid = datasets.Multi30k(str(tmp_path), split="valid", language_pair=("en", "de"))
    assert next(iter(valid)) == ("A dog.", "Ein Hund.")
    fields = data.Field(), data.Field()
    parts = datasets.Multi30k.splits(
        (".de", ".en"), fields, root=str(tmp_path), test="test_2016_flickr"
    )
    assert [len(part) for part in parts] == [2, 2, 2] and parts[0][0].src == ["Ein", "Hund."]
    with pytest.raises(AssertionError, match="language_pair"):
        datasets.Multi30k(str(tmp_path), language_pair=("de", "fr"))


def test_texts_of_language_models(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "wikitext-2" / "wikitext-2"
    folder.mkdir(parents=True)
    for part in ("train", "valid", "test"):
        (folder / f"wiki.{part}.tokens").write_text(" = A = \n\n a b c d e f g h\n")
    assert list(datasets.WikiText2(str(tmp_path), "valid"))[1] == "\n"
    field = data.Field()
    train, valid, test = datasets.WikiText2.splits(field, root=str(tmp_path))
    assert train[0].text.count("<eos>") == 3 and len(valid[0].text) == len(test[0].text) == 14
    iterators = datasets.WikiText2.iters(batch_size=2, bptt_len=3, root=str(tmp_path))
    batch = next(iter(iterators[0]))
    assert batch.text.shape == (3, 2) and (batch.text[1:] == batch.target[:-1]).all()


def test_sentences_with_tags(tmp_path: pathlib.Path) -> None:
    (tmp_path / "tags").write_text("I\tPRON\nrun\tVERB\n\n\nGo\tVERB\n")
    fields = [("word", data.Field()), ("tag", data.Field())]
    made = datasets.SequenceTaggingDataset(str(tmp_path / "tags"), fields)
    assert [(x.word, x.tag) for x in made] == [(["I", "run"], ["PRON", "VERB"]), (["Go"], ["VERB"])]
    assert made.sort_key(made[0]) == 2


# --- transforms ------------------------------------------------------------------------------


def test_transforms_of_lists_and_batches(tmp_path: pathlib.Path) -> None:
    letters = vocab.vocab(OrderedDict(a=1, b=1, c=1))
    pipeline = transforms.Sequential(
        transforms.VocabTransform(letters),
        transforms.Truncate(2),
        transforms.AddToken(9),
        transforms.AddToken(8, begin=False),
        transforms.ToTensor(padding_value=7),
    )
    assert pipeline([["a", "b", "c"], ["c"]]).tolist() == [[9, 0, 1, 8], [9, 2, 8, 7]]
    assert pipeline(["c"]).tolist() == [9, 2, 8]
    assert functional.truncate(["a", "b"], 1) == ["a"]
    assert functional.str_to_int([["1"], ["2", "3"]]) == [[1], [2, 3]]
    assert transforms.StrToIntTransform()(["4"]) == [4]
    assert transforms.PadTransform(4, 1)(weft.tensor([[5, 6]])).tolist() == [[5, 6, 1, 1]]
    labels = transforms.LabelToIndex(["test", "label"], sort_names=True)
    assert labels("label") == 0 and labels(["test"]) == [1]
    (tmp_path / "labels").write_text("test\nlabel\n\n")
    assert transforms.LabelToIndex(label_path=str(tmp_path / "labels")).label_names[0] == "test"
    for wrong in ("a", [1, "a"], [["a"], 1]):
        with pytest.raises(TypeError, match="Input type not supported"):
            functional.to_tensor(wrong)
    with pytest.raises(AssertionError, match="either"):
        transforms.LabelToIndex()


def test_archives_are_unpacked_where_they_are(tmp_path: pathlib.Path) -> None:
    (tmp_path / "rows.csv").write_text('1,"a, b"\n')
    with tarfile.open(tmp_path / "packed.tar.gz", "w:gz") as packed:
        packed.add(tmp_path / "rows.csv", "inner/rows.csv")
    found = text.utils.extract_archive(str(tmp_path / "packed.tar.gz"))
    assert found == [str(tmp_path / "inner" / "rows.csv")]
    with open(found[0], encoding="utf-8") as file:
        assert list(text.utils.unicode_csv_reader(file)) == [["1", "a, b"]]
    with gzip.open(tmp_path / "one.txt.gz", "wt") as file:
        file.write("text")
    assert text.utils.extract_archive(str(tmp_path / "one.txt.gz")) == [str(tmp_path / "one.txt")]
    with pytest.raises(RuntimeError, match="has the sha256"):
        text.utils.download_from_url("file:///rows.csv", root=str(tmp_path), hash_value="0")
