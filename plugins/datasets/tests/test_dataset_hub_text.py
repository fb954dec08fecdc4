"""`hub` on text: symbols, vocabularies, tokenizers, and the next symbol as the target."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from pegboard import Classes, DataSpec, PegboardError, Tokens
from pegboard.data import padding_share, similar_order
from pegboard_datasets import Hub, Input, SplitNames, Target, hub_spec
from pegboard_datasets.text import chunks, fit_vocabulary, pad
from pegboard_datasets.unigram import train_unigram

TEXTS = [
    "The cat sat on the mat.",
    "A dog barked; the cat ran!",
    "On the mat the dog sat, and the cat watched.",
    "Nobody watched the watching dog.",
] * 5
SYMBOLS = ("words", "whitespace", "characters", "bpe", "wordpiece", "unigram")


def write(path: Path, texts=TEXTS, labels=("a", "b")) -> str:
    lines = [json.dumps({"text": t, "label": labels[i % len(labels)]}) for i, t in enumerate(texts)]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines))
    return str(path)


def test_words_are_numbered_by_how_often_they_come():
    vocabulary = fit_vocabulary(["b a b", "b a. c"], "words")
    assert vocabulary.symbols == ("<pad>", "<unk>", "b", "a", ".", "c")
    assert vocabulary.encode(["c b?"]) == [[5, 2, 1]]
    assert vocabulary.decode([2, 3, 0]) == "b a"


def test_whitespace_keeps_marks_at_their_words():
    assert fit_vocabulary(["end. <unk> @-@"], "whitespace").symbols == ("<pad>", "<unk>", "@-@", "end.")


def test_characters_are_numbered_by_code_point():
    vocabulary = fit_vocabulary(["hello\n"], "characters", special=())
    assert vocabulary.symbols == ("\n", "e", "h", "l", "o")
    assert vocabulary.decode(vocabulary.encode(["hole"])[0]) == "hole"


def test_vocab_keeps_the_most_frequent():
    vocabulary = fit_vocabulary(["a a a b b c"], "words", 4)
    assert vocabulary.symbols == ("<pad>", "<unk>", "a", "b")
    assert vocabulary.encode(["a c b"]) == [[2, 1, 3]]


def test_lowercase_applies_to_fitting_and_reading():
    vocabulary = fit_vocabulary(["The the THE"], "words", lowercase=True)
    assert vocabulary.symbols == ("<pad>", "<unk>", "the")
    assert vocabulary.encode(["tHe"]) == [[2]]


def test_without_an_unknown_symbol_the_unseen_is_an_error():
    vocabulary = fit_vocabulary(["abc"], "characters", special=("<pad>",))
    with pytest.raises(PegboardError, match=r"the symbol 'x' is not in the vocabulary"):
        vocabulary.encode(["axe"])


@pytest.mark.catalogue("S4-106")
@pytest.mark.parametrize("tokens", ["bpe", "wordpiece", "unigram"])
@pytest.mark.parametrize("lowercase", [False, True])
def test_a_trained_tokenizer_keeps_the_text(tokens, lowercase):
    vocabulary = fit_vocabulary(TEXTS, tokens, 300, lowercase=lowercase)
    size = len(vocabulary.symbols)
    assert size <= 300
    assert vocabulary.symbols[0] == "<pad>"
    for text in TEXTS[:4]:
        numbers = vocabulary.encode([text])[0]
        assert all(0 < n < size for n in numbers)
        assert len(numbers) < len(text)
        expected = text.lower() if lowercase else text
        # WordPiece does not know where blanks stood around marks.
        squeezed = (lambda t: t.replace(" ", "")) if tokens == "wordpiece" else str
        assert squeezed(vocabulary.decode(numbers)) == squeezed(expected)


@pytest.mark.catalogue("S4-106")
def test_wordpiece_cuts_words_into_their_longest_pieces_and_joins_them_again():
    vocabulary = fit_vocabulary(TEXTS, "wordpiece", 60)
    known, joined = set(vocabulary.symbols), 0
    for text in ("the dog watched", "A cat barked at Nobody", "On the mat Nobody sat"):
        numbers = vocabulary.encode([text])[0]
        pieces = [vocabulary.symbols[n] for n in numbers]
        expected = []
        for word in text.split():
            mark = ""
            while word:
                end = next(e for e in range(len(word), 0, -1) if mark + word[:e] in known)
                expected.append(mark + word[:end])
                word, mark = word[end:], "##"
        assert pieces == expected
        assert vocabulary.decode(numbers) == text
        joined += sum(piece.startswith("##") for piece in pieces)
    assert joined > 5
    for text in TEXTS[:4]:  # blanks around marks are not kept, the symbols are
        numbers = vocabulary.encode([text])[0]
        assert vocabulary.encode([vocabulary.decode(numbers)]) == [numbers]


def test_bytes_leave_nothing_unknown():
    vocabulary = fit_vocabulary(TEXTS, "bpe", 300)
    text = "Ünïcode 猫 \U0001f408"
    assert "<unk>" not in vocabulary.symbols
    assert vocabulary.decode(vocabulary.encode([text])[0]) == text


@pytest.mark.parametrize("tokens", ["wordpiece", "unigram"])
def test_unseen_letters_are_unknown(tokens):
    vocabulary = fit_vocabulary(TEXTS, tokens, 100)
    assert 1 in vocabulary.encode(["猫"])[0]
    assert vocabulary.symbols[1] == "<unk>"


@pytest.mark.parametrize("tokens", ["wordpiece", "unigram"])
def test_a_vocabulary_smaller_than_the_alphabet_is_an_error(tokens):
    with pytest.raises(PegboardError, match="vocab 5 cannot hold the characters"):
        fit_vocabulary(TEXTS, tokens, 5)


def test_a_hash_sign_in_the_text_is_no_special_symbol():
    vocabulary = fit_vocabulary([*TEXTS, "issue ##a # a"], "wordpiece", 200)
    assert vocabulary.decode(vocabulary.encode(["##a"])[0]).replace(" ", "") == "##a"


def made_up_texts() -> list[str]:
    draw = random.Random(0)
    words = ["".join(draw.choice("etaoinshrd") for _ in range(draw.randint(2, 7))) for _ in range(600)]
    return [" ".join(draw.choice(words) for _ in range(20)) for _ in range(60)]


@pytest.mark.parametrize("tokens", ["bpe", "wordpiece", "unigram"])
def test_trained_tokenizers_come_out_the_same_every_time(tokens):
    texts = made_up_texts()
    found = {fit_vocabulary(texts, tokens, 400).symbols for _ in range(5)}
    assert len(found) == 1
    assert len(found.pop()) == 400


def test_the_librarys_own_wordpiece_trainer_does_not():
    """Why its letters are numbered beforehand; should this fail one day, they need not be any more."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    found = set()
    for _ in range(5):
        tokenizer = Tokenizer(models.WordPiece(unk_token="<unk>"))
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        trainer = trainers.WordPieceTrainer(vocab_size=400, special_tokens=["<unk>"], show_progress=False)
        tokenizer.train_from_iterator(made_up_texts(), trainer)
        found.add(tuple(sorted(tokenizer.get_vocab().items())))
    assert len(found) > 1


def test_unigram_pieces_do_not_depend_on_the_hash_of_a_process():
    code = (
        "from pegboard_datasets.unigram import train_unigram;"
        "print(train_unigram({'_banana': 50, '_bandana': 30, '_cab': 20, '_nab': 5, '_ban': 5}, 16))"
    )
    runs = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env=os.environ | {"PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(runs) == 1


def test_unigram_pieces_are_a_distribution_that_prefers_what_repeats():
    words = {"▁banana": 50, "▁bandana": 30, "▁cab": 20, "▁nab": 5}
    pieces = dict(train_unigram(words, 14))
    assert len(pieces) <= 14
    assert set("▁bandc") <= pieces.keys()
    assert max(pieces, key=len) in ("▁banana", "▁bandana")
    from math import exp

    assert sum(map(exp, pieces.values())) == pytest.approx(1, abs=0.05)


def test_the_unigram_model_is_as_likely_as_that_of_the_library():
    """Bits of the training words under our pieces, against pieces the library's trainer found."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    letters = "etaoinshrd"
    words = {
        "▁" + "".join(letters[(i * k * k + 3 * i + k) % (3 + i % 8)] for k in range(3 + i % 6)): 1 + i % 9
        for i in range(1, 500)
    }
    theirs = Tokenizer(models.Unigram())
    theirs.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.UnigramTrainer(
        vocab_size=150, show_progress=False, unk_token="<unk>", special_tokens=["<unk>"]
    )
    theirs.train_from_iterator([" ".join([w] * c) for w, c in words.items()], trainer)

    def cost(pieces: dict[str, float]) -> float:
        from pegboard_datasets.unigram import _best

        total = 0.0
        for word, count in words.items():
            total -= count * sum(pieces[p] for p in _best(word, pieces))
        return total

    library = {p: s for p, s in json.loads(theirs.to_str())["model"]["vocab"] if p != "<unk>"}
    for letter in {c for w in words for c in w}:
        library.setdefault(letter, -20.0)
    ours = dict(train_unigram(words, len(library)))
    assert cost(ours) <= 1.1 * cost(library)


def test_padding_and_cutting_to_one_length():
    assert pad([[5, 6, 7, 8], [9], []], 3).tolist() == [[5, 6, 7], [9, 0, 0], [0, 0, 0]]


def test_chunks_are_the_stream_and_its_successors():
    x, y = chunks(list(range(10)), 4)
    assert x.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert y.tolist() == [[1, 2, 3, 4], [5, 6, 7, 8]]
    assert chunks([1, 2, 3, 4], 4)[0].shape == (0, 4)
    assert chunks([1, 2, 3, 4, 5], 4)[1].tolist() == [[2, 3, 4, 5]]


@pytest.mark.parametrize("tokens", SYMBOLS)
def test_texts_with_classes(hub, tmp_path, tokens):
    path = write(tmp_path / "t.jsonl")
    options = Input(kind="text", tokens=tokens, vocab=300, length=12, lowercase=True)
    fields = {"path": path, "inputs": {"text": options}, "target": Target(column="label", kind="classes")}
    splits = hub(**fields)
    light = hub_spec(Hub(**fields))
    (spec,) = splits.spec.inputs
    assert isinstance(spec, Tokens)
    assert (spec.length, spec.padding) == (12, 0)
    assert light == DataSpec((Tokens(None, 12, 0),), Classes(), ("text",))
    for source in (splits.train, splits.val, splits.test):
        (x,) = source.inputs
        assert len(x) == len(source) and x.lengths.max() <= 12
        assert x.symbols.dtype == torch.int64
        assert x.symbols.min() > 0
        assert x.symbols.max() < spec.vocab
    again = hub(**fields)
    assert again.notes["fingerprint"] == splits.notes["fingerprint"]


def test_the_vocabulary_knows_the_training_texts_alone(hub, tmp_path):
    write(tmp_path / "d" / "train.jsonl", ["seen words here"] * 4)
    write(tmp_path / "d" / "test.jsonl", ["unseen words"] * 2)
    splits = hub(path=str(tmp_path / "d"), inputs=("text",), target="label", val=0)
    assert splits.notes["statistics"]["text"]["symbols"] == ["<pad>", "<unk>", "here", "seen", "words"]
    assert splits.test.inputs[0].padded(3).tolist() == [[1, 4, 0]] * 2


def test_the_length_is_that_of_the_longest_training_text_by_default(hub, tmp_path):
    path = write(tmp_path / "t.jsonl", ["a b", "a b c d e", "a"] * 4)
    splits = hub(path=path, inputs=("text",), target="label", val=0, test=0)
    assert splits.spec.inputs == (Tokens(7, 5, 0),)


def test_a_written_text_is_read_as_the_training_texts(hub, tmp_path):
    path = write(tmp_path / "t.jsonl")
    splits = hub(path=path, inputs=("text",), target="label", val=0, test=0)
    texts = {tuple(row) for row in splits.train.inputs[0].padded().tolist()}
    (encoded,) = splits.encode({"text": [TEXTS[0], "zebra"]})
    assert tuple(encoded[0].tolist()) in texts
    assert encoded[1].tolist()[:2] == [1, 0]


def test_two_columns_of_text_are_two_inputs(hub, tmp_path):
    lines = [json.dumps({"de": "eins zwei", "en": f"one two {i}", "y": i % 2}) for i in range(10)]
    (tmp_path / "t.jsonl").write_text("\n".join(lines))
    splits = hub(path=str(tmp_path / "t.jsonl"), inputs=("de", "en"), target="y")
    assert splits.spec.names == ("de", "en")
    assert [x.lengths.unique().tolist() for x in splits.train.inputs] == [[2], [3]]
    assert [x.shape for x in splits.train.gather(torch.arange(4)).inputs] == [(4, 2), (4, 3)]


def test_the_next_character(hub, tmp_path):
    text = "abcdefghij" * 30
    write(tmp_path / "t.jsonl", [text])
    fields = {
        "path": str(tmp_path / "t.jsonl"),
        "inputs": {"text": Input(kind="text", tokens="characters", length=7, unknown=False)},
        "target": Target(kind="next"),
    }
    splits = hub(**fields)
    assert splits.spec == DataSpec((Tokens(10, 7, -1),), Tokens(10, 7, -1), ("text",))
    assert hub_spec(Hub(**fields)) == DataSpec((Tokens(None, 7, -1),), Tokens(None, 7, -1), ("text",))
    # 210 characters train, 30 validate, 60 test, in this order.
    assert (len(splits.train), len(splits.val), len(splits.test)) == (29, 4, 8)
    for source in (splits.train, splits.val, splits.test):
        assert torch.equal((source.inputs[0] + 1) % 10, source.target)
    assert splits.train.inputs[0].flatten().tolist() == [i % 10 for i in range(29 * 7)]
    assert splits.val.inputs[0][0].tolist() == [0, 1, 2, 3, 4, 5, 6]
    (prompt,) = splits.encode({"text": ["abc", "hij"]})
    assert prompt.tolist() == [[0, 1, 2], [7, 8, 9]]
    with pytest.raises(PegboardError, match="texts of 1, 2 symbols"):
        splits.encode({"text": ["a", "ab"]})


def test_lines_are_joined_by_breaks_for_characters_and_by_an_end_for_words(hub, tmp_path):
    (tmp_path / "t.txt").write_text("one two\nthree\none\n")
    common = {"path": str(tmp_path / "t.txt"), "target": Target(kind="next"), "val": 0, "test": 0}
    words = hub(inputs={"text": Input(tokens="words", length=2)}, **common)
    symbols = words.notes["statistics"]["text"]["symbols"]
    assert symbols == ["<unk>", "<end>", "one", "three", "two"]
    stream = [*words.train.inputs[0].flatten().tolist(), words.train.target[-1, -1].item()]
    assert [symbols[n] for n in stream] == ["one", "two", "<end>", "three", "<end>", "one", "<end>"]
    letters = hub(inputs={"text": Input(tokens="characters", length=4, unknown=False)}, **common)
    symbols = letters.notes["statistics"]["text"]["symbols"]
    text = "".join(symbols[n] for n in letters.train.inputs[0].flatten().tolist())
    assert text == "one two\nthree\none"[:16]


def test_many_short_documents_are_packed_without_padding(hub, tmp_path):
    documents = [" ".join(["word"] * (1 + i % 3)) for i in range(100)]
    path = write(tmp_path / "t.jsonl", documents)
    inputs = {"text": Input(tokens="words", length=32)}
    splits = hub(path=path, inputs=inputs, target=Target(kind="next"), val=0, test=0)
    symbols = splits.notes["statistics"]["text"]["symbols"]
    end, stream = symbols.index("<end>"), splits.train.inputs[0].flatten()
    total = sum(1 + i % 3 for i in range(100)) + 100  # with an end after each
    assert splits.train.inputs[0].shape == ((total - 1) // 32, 32)
    assert splits.spec.inputs[0].padding == -1 and "<pad>" not in symbols
    # As many documents as fit, one after the other, each with its own number of words.
    ends = (stream == end).nonzero().flatten()
    words = ends.diff(prepend=torch.tensor([-1])) - 1
    assert words.tolist() == [1 + i % 3 for i in range(len(ends))] and len(ends) > 95


def test_texts_of_like_length_share_a_batch(hub, tmp_path):
    draw = random.Random(2)
    texts = ["word " * min(1 + int(draw.expovariate(1 / 15)), 80) for _ in range(3000)]
    for memory in ("always", "never"):
        splits = hub(
            path=write(tmp_path / "t.jsonl", texts),
            inputs={"text": Input(length=64)}, target="label", memory=memory, val=0, test=0,
        )  # fmt: skip
        train = splits.train
        assert int(train.lengths.max()) == 64
        order = similar_order(train.lengths, 16, 0, 0, True)
        batches = [train.gather(index).inputs[0] for index in torch.split(order, 16)]
        assert max(x.shape[1] for x in batches) == 64
        padding = sum(int((x == 0).sum()) for x in batches) / sum(x.numel() for x in batches)
        assert padding == pytest.approx(padding_share(train.lengths, torch.split(order, 16)))
        assert padding < 0.1


def test_a_limit_keeps_the_beginning_of_the_text(hub, tmp_path):
    write(tmp_path / "t.jsonl", ["abcdefghij" * 30])
    common = {
        "path": str(tmp_path / "t.jsonl"),
        "inputs": {"text": Input(tokens="characters", length=7)},
        "target": Target(kind="next"),
    }
    whole, few = hub(**common), hub(**common, limit=3, eval_limit=2)
    assert torch.equal(whole.train.inputs[0][:3], few.train.inputs[0])
    assert torch.equal(whole.train.target[:3], few.train.target)
    assert (len(few.val), len(few.test)) == (2, 2)


def test_a_text_shorter_than_a_sample_is_an_error(hub, tmp_path):
    write(tmp_path / "t.jsonl", ["abcdefghij"])
    with pytest.raises(PegboardError, match="the train text has 10 symbols"):
        hub(
            path=str(tmp_path / "t.jsonl"),
            inputs={"text": Input(tokens="characters", length=10)},
            target=Target(kind="next"),
            val=0,
            test=0,
            splits=SplitNames(),
        )
