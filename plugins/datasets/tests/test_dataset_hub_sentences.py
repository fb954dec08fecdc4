"""`hub` on marked texts: pairs of sentences, tags of words, answers in a text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from pegboard import Classes, DataSpec, Facts, PegboardError, Tokens
from pegboard_datasets import Hub, Input, Target, check_hub, hub_spec
from pegboard_datasets.spans import token_span
from pegboard_datasets.text import fit_vocabulary
from pegboard_transformer import Span

SYMBOLS = ("words", "whitespace", "characters", "bpe", "wordpiece", "unigram")


def write(path: Path, rows: list[dict]) -> str:
    path.write_text("\n".join(map(json.dumps, rows)))
    return str(path)


def named(splits, symbols: torch.Tensor) -> list[str]:
    """The symbols of each row, without padding."""
    names = next(iter(splits.notes["statistics"].values()))["symbols"]
    return [" ".join(names[n] for n in row if n) for row in symbols.tolist()]


PAIRS = [
    {"a": "it rains", "b": "it is wet", "label": "follows"},
    {"a": "it rains today", "b": "no", "label": "not"},
] * 4
WHOLE = {"val": 0, "test": 0}


@pytest.mark.catalogue("S4-106")
def test_two_texts_are_one_input_with_their_segments(hub, tmp_path):
    given = {
        "path": write(tmp_path / "t.jsonl", PAIRS),
        "inputs": {"a": Input(kind="text"), "b": Input(kind="text")},
        "target": Target(column="label", kind="classes"),
        "marked": True,
        **WHOLE,
    }
    splits = hub(**given)
    vocab = splits.spec.inputs[0].vocab
    assert splits.spec == DataSpec(
        (Tokens(vocab, 5 + 4, 0, 2, 3), Tokens(2, 9)), Classes(2, ("follows", "not")), ("a+b", "segments")
    )
    assert hub_spec(Hub(**given)) == DataSpec(
        (Tokens(None, None, 0, 2, 3), Tokens(2)), Classes(), ("a+b", "segments")
    )
    batch = splits.train.gather(torch.arange(8))
    found = {
        (text, tuple(sides), splits.spec.target.names[y])
        for text, sides, y in zip(
            named(splits, batch.inputs[0]), batch.inputs[1].tolist(), batch.target.tolist(), strict=True
        )
    }
    assert found == {
        ("<cls> it rains <sep> it is wet <sep>", (0, 0, 0, 0, 1, 1, 1, 1), "follows"),
        ("<cls> it rains today <sep> no <sep>", (0, 0, 0, 0, 0, 1, 1, 0), "not"),
    }
    encoded = splits.encode({"a": ["it rains"], "b": ["it is wet"]})
    assert encoded[0].shape == (1, 9)
    assert named(splits, encoded[0]) == ["<cls> it rains <sep> it is wet <sep>"]


def test_each_text_is_cut_at_its_own_length_and_keeps_its_marks(hub, tmp_path):
    splits = hub(
        path=write(tmp_path / "t.jsonl", PAIRS),
        inputs={"a": Input(length=3), "b": Input(length=3)},
        target="label",
        marked=True,
        **WHOLE,
    )
    batch = splits.train.gather(torch.arange(8))
    assert set(named(splits, batch.inputs[0])) == {"<cls> it <sep> it is <sep>", "<cls> it <sep> no <sep>"}
    assert batch.inputs[0].shape == (8, 6)


def test_one_marked_text_has_no_segments(hub, tmp_path):
    splits = hub(path=write(tmp_path / "t.jsonl", PAIRS), inputs=("a",), target="label", marked=True, **WHOLE)
    assert len(splits.spec.inputs) == 1
    assert "<cls> it rains <sep>" in named(splits, splits.train.gather(torch.arange(8)).inputs[0])


TAGGED = [
    {"words": ["Anna", "isn't", "in", "Rome"], "tags": ["PER", "O", "O", "LOC"]},
    {"words": ["Rome", "!"], "tags": ["LOC", "O"]},
] * 4


@pytest.mark.parametrize("marked", [False, True])
@pytest.mark.parametrize("tokens", SYMBOLS)
def test_the_first_piece_of_a_word_has_its_tag(hub, tmp_path, tokens, marked):
    given = {
        "path": write(tmp_path / "t.jsonl", TAGGED),
        "inputs": {"words": Input(kind="text", tokens=tokens, vocab=290)},
        "target": Target(column="tags", kind="tags"),
        "marked": marked,
        **WHOLE,
    }
    splits = hub(**given)
    length = splits.spec.inputs[0].length
    assert splits.spec.target == Tokens(3, length)
    assert hub_spec(Hub(**given)).target == Tokens(None, None)
    assert splits.notes["statistics"]["tags"] == ["LOC", "O", "PER"]
    batch = splits.train.gather(torch.arange(8))
    symbols = batch.inputs[0]
    assert batch.target.shape == symbols.shape
    assert (batch.target[symbols == 0] == -100).all()
    for row, tags in zip(symbols.tolist(), batch.target.tolist(), strict=True):
        asked = [tag for tag in tags if tag != -100]
        assert asked in ([2, 1, 1, 0], [0, 1])
        if marked:
            assert tags[0] == -100 and splits.notes["statistics"]["words"]["symbols"][row[0]] == "<cls>"
        # Every word has a symbol at least.
        starts = [i for i, tag in enumerate(tags) if tag != -100]
        ends = [*starts[1:], sum(n != 0 for n in row) - marked]
        assert all(a < b for a, b in zip(starts, ends, strict=True))
    assert set(splits.decode(batch.target)) == {"PER O O LOC", "LOC O"}
    # Rows that a person wrote are asked at the same places.
    written = {"words": ["Anna isn't in Rome", '["Rome", "!"]', ""]}
    asked, symbols = splits.asked(written), splits.encode(written)[0]
    assert asked.shape == symbols.shape and asked.sum(1).tolist() == [4, 2, 0]
    known = {tuple(row): tags for row, tags in zip(batch.inputs[0].tolist(), batch.target, strict=True)}
    for row, of in zip(symbols[:2].tolist(), asked, strict=False):
        assert torch.equal(of[: len(known[tuple(row)])], known[tuple(row)] != -100)


def test_pieces_of_a_word_follow_it_without_a_label(hub, tmp_path):
    splits = hub(
        path=write(tmp_path / "t.jsonl", TAGGED),
        inputs={"words": Input(tokens="words")},
        target=Target(column="tags", kind="tags"),
        marked=True,
        **WHOLE,
    )
    batch = splits.train.gather(torch.arange(8))
    rows = dict(zip(named(splits, batch.inputs[0]), batch.target.tolist(), strict=True))
    assert rows == {
        "<cls> Anna isn ' t in Rome <sep>": [-100, 2, 1, -100, -100, 1, 0, -100],
        "<cls> Rome ! <sep>": [-100, 0, 1, -100, -100, -100, -100, -100],
    }
    for written in (["Anna", "isn't"], '["Anna", "isn\'t"]', "Anna isn't"):
        assert named(splits, splits.encode({"words": [written]})[0]) == ["<cls> Anna isn ' t <sep>"]


def test_words_are_cut_into_the_pieces_of_a_running_text(hub, tmp_path):
    splits = hub(
        path=write(tmp_path / "t.jsonl", TAGGED),
        inputs={"words": Input(tokens="bpe", vocab=300)},
        target=Target(column="tags", kind="tags"),
        **WHOLE,
    )
    (found,) = splits.encode({"words": [["Anna", "in", "Rome"]]})
    symbols = splits.notes["statistics"]["words"]["symbols"]
    running = "".join(symbols[n] for n in found[0].tolist() if n)
    assert running == "AnnaĠinĠRome"


def test_tags_that_do_not_fit_their_words_are_named_with_the_row(hub, tmp_path):
    path = write(tmp_path / "t.jsonl", [*TAGGED, {"words": ["one"], "tags": ["O", "O"]}])
    with pytest.raises(PegboardError, match=r"row 8 .*1 words in 'words' and 2 tags in 'tags'"):
        hub(path=path, inputs=("words",), target=Target(column="tags", kind="tags"), **WHOLE)


def test_tags_of_no_training_word_are_told_with_their_counts(hub, tmp_path):
    (folder := tmp_path / "t").mkdir()
    write(folder / "train.jsonl", TAGGED)
    write(folder / "test.jsonl", [*TAGGED, {"words": ["Mars", "and", "Venus"], "tags": ["SKY", "O", "SKY"]}])
    fields = {"inputs": ("words",), "target": Target(column="tags", kind="tags"), "val": 0.0}
    (told,) = hub(path=str(folder), **fields).warnings
    assert told == "1 tag of no training word, which no model can learn: 'SKY' (2 of test)"
    assert hub(path=str(folder / "train.jsonl"), **fields, test=0.0).warnings == ()


QUESTIONS = [
    {"q": "who?", "text": "Once upon a time Anna Karenina lived.", "answer": "Anna Karenina"},
    {"q": "when was it?", "text": "Once upon a time Anna lived.", "answer": "Once upon a time"},
    {"q": "where?", "text": "Über den Wolken, İn Rome.", "answer": "İn Rome"},
    {"q": "why?", "text": "nobody says.", "answer": ""},
]


def spans(rows: list[dict], form: str) -> tuple[list[dict], str | tuple[str, ...]]:
    """The rows with their answers in one of the forms that are read, and the columns of it."""
    rows = [dict(row) for row in rows]
    for row in rows:
        answer = row.pop("answer")
        start = row["text"].index(answer) if answer else -1
        if form == "text":
            row |= {"start": start, "said": answer}
        elif form == "end":
            row |= {"start": start, "said": start + len(answer)}
        else:
            row["answers"] = {"text": [answer] * bool(answer), "answer_start": [start] * bool(answer)}
    return rows, ("answers" if form == "nested" else ("start", "said"))


@pytest.mark.parametrize("form", ["text", "end", "nested"])
@pytest.mark.parametrize("tokens", SYMBOLS)
def test_an_answer_is_where_its_symbols_stand(hub, tmp_path, tokens, form):
    rows, columns = spans(QUESTIONS, form)
    splits = hub(
        path=write(tmp_path / "t.jsonl", rows),
        inputs={"q": Input(tokens=tokens, vocab=350, lowercase=True), "text": Input()},
        target=Target(column=columns, kind="span"),
        marked=True,
        **WHOLE,
    )
    assert splits.spec.target == Span(splits.spec.inputs[0].length)
    batch = splits.train.gather(torch.arange(4))
    names = splits.notes["statistics"]["q"]["symbols"]
    found = set()
    for row, sides, (first, last) in zip(*(t.tolist() for t in (*batch.inputs, batch.target)), strict=True):
        if (first, last) == (0, 0):
            found.add("")
            continue
        assert set(sides[first : last + 1]) == {1}
        pieces = "".join(names[n] for n in row[first : last + 1])
        found.add(pieces)
    plain = {"".join(c for c in t if c.isascii() and c.isalpha()) for t in found}
    said = {r["answer"].lower().replace(" ", "") for r in QUESTIONS}
    assert plain == {"".join(c for c in t if c.isascii() and c.isalpha()) for t in said}


def test_an_answer_that_is_cut_off_is_none_or_its_row_is_dropped(hub, tmp_path):
    rows, columns = spans(QUESTIONS * 2, "text")
    given = {
        "path": write(tmp_path / "t.jsonl", rows),
        "inputs": {"q": Input(length=5), "text": Input(length=6)},
        "marked": True,
        **WHOLE,
    }
    cut = hub(target=Target(column=columns, kind="span"), **given)
    assert cut.notes["statistics"]["answers"] == {"train": {"cut": 4}}
    assert len(cut.train) == 8 and (cut.train.target == 0).all(1).sum() == 6
    dropped = hub(target=Target(column=columns, kind="span", overlong="drop"), **given)
    assert dropped.notes["statistics"]["answers"] == {"train": {"dropped": 4}}
    assert len(dropped.train) == 4 and (dropped.train.target == 0).all(1).sum() == 2


def test_an_answer_that_is_not_in_its_text_is_named_with_the_row(hub, tmp_path):
    rows, columns = spans(QUESTIONS, "text")
    rows[1]["start"] = 3
    with pytest.raises(PegboardError, match=r"row 1 .*'Once upon a time' at 3 is not in column 'text'"):
        hub(
            path=write(tmp_path / "t.jsonl", rows),
            inputs=("q", "text"),
            target=Target(column=columns, kind="span"),
            marked=True,
        )


def test_places_of_symbols_and_the_stretch_that_they_cover():
    places = [(0, 3), (4, 6), (7, 8), (8, 9)]
    assert token_span(places, (4, 8)) == (1, 2)
    assert token_span(places, (5, 6)) == (1, 1)
    assert token_span(places, (0, 9)) == (0, 3)
    assert token_span(places, (3, 4)) is None


@pytest.mark.parametrize("tokens", SYMBOLS)
def test_every_symbol_knows_its_place_in_the_text(tokens):
    texts = ["The cat sat, on  the mat.", "İstanbul'a ÜBER naïve 猫!"]
    vocabulary = fit_vocabulary(texts * 4, tokens, 400, lowercase=True)
    for text, places, symbols in zip(texts, vocabulary.places(texts), vocabulary.encode(texts), strict=True):
        assert len(places) == len(symbols)
        covered = {i for start, end in places for i in range(start, end)}
        assert {i for i, c in enumerate(text) if not c.isspace()} <= covered
        pieces = [text[start:end] for start, end in places]
        assert all(not piece.strip() or not piece[0].isspace() for piece in pieces)


TEXT = {"a": Input(kind="text")}


@pytest.mark.parametrize(
    ("given", "where"),
    [
        ({"inputs": {"a": Input(kind="numbers")}, "target": "y", "marked": True}, "inputs.a.kind"),
        ({"inputs": ("a", "b", "c"), "target": "y", "marked": True}, "inputs"),
        ({"inputs": {**TEXT, "b": Input(tokens="bpe")}, "target": "y", "marked": True}, "inputs.b.tokens"),
        ({"inputs": {"a": Input(length=2)}, "target": "y", "marked": True}, "inputs.a.length"),
        ({"inputs": ("a", "b"), "target": Target(column="t", kind="tags")}, "inputs"),
        ({"inputs": ("a", "b"), "target": Target(column="t", kind="span")}, "marked"),
        (
            {"inputs": ("a",), "target": Target(column=("s", "t", "u"), kind="span"), "marked": True},
            "target.column",
        ),
        ({"inputs": ("a",), "target": "y", "marked": True, "memory": "never"}, "memory"),
    ],
)
def test_what_cannot_be_is_told_without_reading(given, where):
    assert where in [p.field for p in check_hub(Hub(path="owner/name", **given), Facts())]
