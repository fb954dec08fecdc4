"""Blocks and stacks beside those of torch, and what a decoder may see."""

from __future__ import annotations

from pathlib import Path

import pegboard
import pytest
import torch
from pegboard_transformer.adoption import torch_names
from pegboard_transformer.blocks import Block, FeedForward, Form, Stack, causal_mask, key_mask
from pegboard_transformer.initial import shrink_branches, xavier
from sweeps import first_of_each_row
from torch import Tensor, nn
from torch.nn import functional as F

pytestmark = pytest.mark.usefixtures("lean")

HERE = Path(__file__).parent


def form(norm: str = "post", **more: object) -> Form:
    return Form(**{"width": 16, "heads": 4, "feed": 64, "norm": norm, **more})  # type: ignore[arg-type]


def stir(model: nn.Module) -> None:
    """Move all parameters from where they start: ones and zeros hide mistakes."""
    for p in model.parameters():
        p.data += 0.1 * torch.randn_like(p)


def parameters(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


@pytest.mark.catalogue("S4-103")
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_an_encoder_block_is_that_of_torch(norm: str, activation: str) -> None:
    reference = nn.TransformerEncoderLayer(
        16, 4, 64, 0.0, activation, batch_first=True, norm_first=norm == "pre", layer_norm_eps=1e-4
    )
    stir(reference)
    block = Block(form(norm, activation=activation, eps=1e-4))
    stack = torch_names({f"layers.0.{name}": t for name, t in reference.state_dict().items()}, "")
    block.load_state_dict({name.removeprefix("blocks.0."): t for name, t in stack.items()})
    x, lasts = torch.randn(3, 7, 16), torch.arange(7) < torch.tensor([7, 4, 1]).unsqueeze(1)
    torch.testing.assert_close(block(x), reference(x), atol=1e-5, rtol=0)
    masked = reference(x, src_key_padding_mask=~lasts)
    torch.testing.assert_close(block(x, key_mask(lasts), lasts), masked, atol=1e-5, rtol=0)
    assert parameters(block) == parameters(reference) == 3280


@pytest.mark.catalogue("S4-103")
def test_a_block_of_the_published_size_has_its_parameters() -> None:
    with torch.device("meta"):
        assert parameters(Block(form(width=512, heads=8, feed=2048))) == 3_152_384


@pytest.mark.catalogue("S4-101", "S4-102", "S4-103")
@pytest.mark.parametrize(
    ("positions", "low", "high"), first_of_each_row([("sinusoidal", 0.95, 1.0), ("none", 0.1, 0.5)])
)
def test_a_sequence_is_reversed_by_one_block_that_knows_positions_alone(
    positions: str, low: float, high: float, tmp_path: Path
) -> None:
    run = pegboard.train(
        {
            "plugins": {"local": [str(HERE / "reversal_plugin.py")]},
            "data": {"name": "reversal", "batch_size": 100},
            "model": {
                "name": "encoder",
                "layers": 1,
                "width": 32,
                "heads": 2,
                "activation": "relu",
                "norm": "post",
                "positions": positions,
            },
            "optimizer": {"name": "adam", "lr": 0.01},
            "trainer": {"epochs": 15},  # 300 steps
        },
        root=tmp_path,
        quiet=True,
    )
    assert low <= run.figures["test/accuracy"] <= high


@pytest.mark.catalogue("S4-104")
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_decoder_block_is_that_of_torch(norm: str) -> None:
    reference = nn.TransformerDecoderLayer(16, 4, 64, 0.0, batch_first=True, norm_first=norm == "pre")
    stir(reference)
    block = Block(form(norm), context=16)
    stack = torch_names({f"layers.0.{name}": t for name, t in reference.state_dict().items()}, "")
    block.load_state_dict({name.removeprefix("blocks.0."): t for name, t in stack.items()})
    assert parameters(block) == parameters(reference) == 4400
    x, context = torch.randn(3, 5, 16), torch.randn(3, 7, 16)
    lasts = torch.arange(7) < torch.tensor([7, 4, 1]).unsqueeze(1)
    later = torch.ones(5, 5).triu(1).bool()
    expected = reference(x, context, tgt_mask=later, memory_key_padding_mask=~lasts)
    y = block(x, causal=True, context=context, context_mask=key_mask(lasts))
    torch.testing.assert_close(y, expected, atol=1e-5, rtol=0)


def two_blocks() -> tuple[Stack, Tensor, Tensor]:
    stack = Stack(2, form("pre"), context=16)
    stir(stack)
    return stack, torch.randn(2, 7, 16), torch.randn(2, 5, 16)


@pytest.mark.catalogue("S4-104")
def test_later_places_have_no_influence_at_all() -> None:
    stack, x, context = two_blocks()
    changed = torch.cat((x[:, :4], torch.randn(2, 3, 16)), 1)
    before, after = (stack(y, causal=True, context=context)[:, :4] for y in (x, changed))
    assert torch.equal(before, after)
    assert (stack(x, context=context) - stack(changed, context=context))[:, :4].abs().max() > 0.01


@pytest.mark.catalogue("S4-104")
def test_place_by_place_is_the_parallel_pass() -> None:
    stack, x, context = two_blocks()
    whole = stack(x, causal=True, context=context)
    memory = stack.remember(context)
    past, steps = None, []
    for place in range(7):
        y, past = stack.extend(x[:, place : place + 1], past=past, memory=memory)
        steps.append(y)
    torch.testing.assert_close(torch.cat(steps, 1), whole, atol=1e-5, rtol=0)
    assert past is not None and past[1][0].shape == (2, 4, 7, 4)
    # Several places at once after others, with a mask of what each may see.
    first, past = stack.extend(x[:, :3], causal=True, memory=memory)
    rest, _ = stack.extend(x[:, 3:], causal_mask(4, 7), past=past, memory=memory)
    torch.testing.assert_close(torch.cat((first, rest), 1), whole, atol=1e-5, rtol=0)


@pytest.mark.parametrize("activation", ["relu", "gelu", "gelu_tanh", "silu", "swiglu"])
def test_feed_forward_layers_are_two_maps_around_their_nonlinearity(activation: str) -> None:
    layer, x = FeedForward(form(activation=activation)), torch.randn(2, 3, 16)
    plain = {
        "relu": lambda h: h.clamp(min=0),
        "gelu": lambda h: h * torch.special.ndtr(h),
        "gelu_tanh": lambda h: h * torch.sigmoid(2 * (2 / torch.pi) ** 0.5 * (h + 0.044715 * h**3)),
        "silu": lambda h: h * torch.sigmoid(h),
        "swiglu": lambda h: h[..., :64] * torch.sigmoid(h[..., :64]) * h[..., 64:],
    }[activation]
    torch.testing.assert_close(layer(x), layer.down(plain(layer.up(x))), atol=1e-5, rtol=1e-4)


def test_a_width_that_heads_do_not_share_is_refused() -> None:
    with pytest.raises(ValueError, match="width 16 is not divisible by the number of heads, 3"):
        form(heads=3)


def test_initial_weights_of_joint_maps_are_drawn_as_separate_ones() -> None:
    stack = Stack(1, form(), context=16)
    xavier(stack)
    block = stack.blocks[0]
    assert isinstance(block, Block)
    limit = (6 / 32) ** 0.5
    for joint in (block.attention.qkv, block.cross.kv):
        assert 0.95 * limit < joint.weight.abs().max() <= limit
    before = block.feed.down.weight.clone(), block.feed.up.weight.clone()
    shrink_branches(stack)
    torch.testing.assert_close(block.feed.down.weight, before[0] / 3**0.5)
    assert torch.equal(block.feed.up.weight, before[1])


class Sum(nn.Module):
    """Hangs on a peg, and keeps the mask it is given."""

    masked = True
    seen: Tensor | None = None

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        self.seen = mask
        return x


def test_pegs_of_a_block_are_told_where_samples_last() -> None:
    block, lasts = Block(form(), context=16), torch.tensor([[True, True, False]])
    pegs = [peg for name, peg in pegboard.planning.pegs.find(block) if peg.layout == "NLC"]
    for peg in pegs:
        peg.add_module("sum", Sum())
    block(torch.randn(1, 3, 16), key_mask(lasts), lasts, context=torch.randn(1, 2, 16))
    assert sorted(peg.site for peg in pegs) == ["affine", "hidden", "residual", "residual", "residual"]
    assert all(peg._modules["sum"].seen is lasts for peg in pegs)  # type: ignore[union-attr]


def test_an_activation_behind_a_peg_sees_what_hangs_there() -> None:
    layer, x = FeedForward(form()), torch.randn(2, 3, 16)
    layer.affine.add_module("norm", nn.Tanh())
    layer.hidden.add_module("drop", nn.Softsign())
    torch.testing.assert_close(layer(x), layer.down(F.softsign(F.relu(layer.up(x).tanh()))))
