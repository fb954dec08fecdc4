"""Blocks that are all alike are told once."""

from pegboard.preview.repeated_blocks import folded


def test_rows_of_blocks_that_are_alike_become_one_where_the_first_stood():
    rows = [("embed.peg", "8 NLC")]
    for n in range(4):
        rows += [(f"blocks.{n}.attention", "2 NHLL"), (f"blocks.{n}.feed", "8 NLC")]
    assert folded([*rows, ("logits", "3 NC")]) == [
        ("embed.peg", "8 NLC"),
        ("blocks.0..3.attention", "2 NHLL"),
        ("blocks.0..3.feed", "8 NLC"),
        ("logits", "3 NC"),
    ]


def test_even_steps_of_names_and_numbers_are_told_by_their_second():
    assert folded([(f"body.{n}", "128 NC") for n in (2, 6, 10, 14)]) == [("body.2,6..14", "128 NC")]
    grown = [(f"dense{n}.norm1", f"{24 + 12 * n} NCHW") for n in range(1, 6)]
    assert folded(grown) == [("dense1..5.norm1", "36,48..84 NCHW")]


def test_what_differs_stays_apart():
    two = [("body.2", "128 NC"), ("body.6", "128 NC")]
    assert folded(two) == two
    halved = [(f"body.{n}", f"{width} NC") for n, width in enumerate((256, 128, 64))]
    assert folded(halved) == halved
    uneven = [(f"body.{n}", "8 NC") for n in (1, 2, 4)]
    assert folded(uneven) == uneven
    assert folded([(f"body.{n}", "8 NC") for n in (1, 2, 3, 5)]) == [
        ("body.1..3", "8 NC"),
        ("body.5", "8 NC"),
    ]
    kinds = [("layer.0", "8 NC"), ("layer.1", "8 NLC"), ("layer.2", "8 NC")]
    assert folded(kinds) == kinds
    assert folded([]) == []


def test_a_number_that_differs_is_found_at_any_place_of_a_name():
    rows = [(f"layer{a}.{b}.norm{c}", f"{8 * a} NCHW") for a in (1, 2) for b in range(3) for c in (1, 2)]
    assert [row[0] for row in folded(rows)] == [
        "layer1.0..2.norm1", "layer1.0..2.norm2", "layer2.0..2.norm1", "layer2.0..2.norm2"
    ]  # fmt: skip


def test_what_comes_again_is_told_again():
    events = [(f"{cell} dropout",) for cell in ("embed", "a.0", "a.1", "a.2", "embed", "a.0", "a.1", "a.2")]
    assert [event for (event,) in folded(events)] == ["embed dropout", "a.0..2 dropout"] * 2
