"""Sinusoidal, learned and rotary positions."""

from __future__ import annotations

import pytest
import torch
from pegboard_transformer.blocks import Attention, Block, Form
from pegboard_transformer.encoder import Encoder
from pegboard_transformer.positions import Learned, Rotary, Sinusoidal, frequencies, rotate, sinusoid
from torch.nn import functional as F

FORM = Form(width=16, heads=4, feed=32)


@pytest.mark.catalogue("S4-102")
def test_an_offset_is_a_rotation_of_sinusoidal_positions() -> None:
    table = sinusoid(100, 64)
    for offset in range(1, 21):
        angle = (offset * frequencies(64)).float()
        cos, sin = angle.cos(), angle.sin()
        s, c = table[:-offset, 0::2], table[:-offset, 1::2]
        turned = torch.stack((s * cos + c * sin, c * cos - s * sin), -1).flatten(1)
        torch.testing.assert_close(table[offset:], turned, atol=1e-5, rtol=0)


@pytest.mark.catalogue("S4-102")
def test_sinusoidal_positions_have_equal_lengths_and_are_less_alike_the_further_apart() -> None:
    table = sinusoid(100, 64)
    torch.testing.assert_close(table.square().sum(1), torch.full((100,), 32.0))
    alike = [F.cosine_similarity(table[:-lag], table[lag:]).mean().item() for lag in (1, 5, 20)]
    assert alike == pytest.approx([0.966, 0.734, 0.590], abs=1e-3)
    expected = torch.tensor([0.841471, 0.540302, 0.0099998, 0.999950])
    torch.testing.assert_close(sinusoid(2, 4)[1], expected, atol=1e-6, rtol=0)


@pytest.mark.catalogue("S4-101")
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_without_positions_an_encoder_follows_a_permutation_and_with_them_it_does_not(norm: str) -> None:
    form = Form(width=16, heads=4, feed=32, norm=norm)  # type: ignore[arg-type]
    tokens = torch.randint(0, 9, (2, 6), generator=torch.Generator().manual_seed(0))
    cycle = torch.tensor([1, 2, 0, 3, 4, 5])
    for positions in ("none", "sinusoidal", "rotary", "learned"):
        torch.manual_seed(0)
        model = Encoder(9, 6, 5, 2, form, positions=positions, steps=True)
        for p in model.parameters():
            p.data = p.data * (10 if p.dim() > 1 else 1)  # past the small initial weights
        away = (model(tokens[:, cycle]) - model(tokens)[:, cycle]).norm()
        assert away < 1e-5 if positions == "none" else away > 1e-2


def test_rotary_positions_depend_on_distances_alone() -> None:
    rotary = Rotary(40, 8)
    q, k = torch.randn(2, 1, 1, 1, 8)
    products = {
        start: (rotate(q, rotary(1, start)) * rotate(k, rotary(1, start + 5))).sum() for start in (0, 3, 30)
    }
    torch.testing.assert_close(products[3], products[0], atol=1e-5, rtol=0)
    torch.testing.assert_close(products[30], products[0], atol=1e-5, rtol=0)
    assert torch.equal(rotate(q, rotary(1)), q)
    torch.testing.assert_close(rotate(q, rotary(1, 7)).norm(), q.norm())


def test_rotary_attention_does_not_change_when_all_places_move_on() -> None:
    attention, rotary, x = Attention(FORM), Rotary(30, 4), torch.randn(2, 5, 16)
    here, there = (attention.attend(*attention.project(x, rotary(5, at)), None, False) for at in (0, 20))
    torch.testing.assert_close(here, there, atol=1e-5, rtol=0)


@pytest.mark.parametrize("make", [lambda: Sinusoidal(8, 4), lambda: Rotary(8, 4), lambda: Learned(32, 4)])
def test_places_of_samples_that_begin_later_count_from_their_first_symbol(make) -> None:  # type: ignore[no-untyped-def]
    positions = make()
    table = positions(20)  # beyond the length of those that are computed
    assert torch.equal(positions(4, 6), table[6:10])
    rows = positions(4, 6, torch.tensor([0, 2, 8]))
    assert torch.equal(rows[0], table[6:10]) and torch.equal(rows[1], table[4:8])
    assert torch.equal(rows[2], table[[0, 0, 0, 1]])


def test_computed_positions_are_no_weights_and_learned_ones_end() -> None:
    assert not Sinusoidal(8, 4).state_dict() and not Rotary(8, 4).state_dict()
    with pytest.raises(ValueError, match="8 learned positions, and a sequence has 9 places"):
        Learned(8, 4)(9)
    with pytest.raises(ValueError, match="even"):
        Rotary(8, 3)
    with pytest.raises(ValueError, match="even"):
        Sinusoidal(8, 3)


def test_a_block_that_rotates_goes_on_from_its_cache() -> None:
    block, rotary, x = Block(FORM), Rotary(4, 4), torch.randn(2, 9, 16)
    whole = block(x, causal=True, rotation=rotary(9))
    y, past = block.extend(x[:, :4], causal=True, rotation=rotary(4))
    steps = [y]
    for place in range(4, 9):
        y, past = block.extend(x[:, place : place + 1], past=past, rotation=rotary(1, place))
        steps.append(y)
    torch.testing.assert_close(torch.cat(steps, 1), whole, atol=1e-5, rtol=0)
