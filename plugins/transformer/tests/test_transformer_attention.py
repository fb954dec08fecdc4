"""Attention: what it computes, its symmetries, its cost, and what may hang on its weights."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from pegboard_transformer.adoption import fused, separate
from pegboard_transformer.blocks import Attention, Form, causal_mask, key_mask
from pegboard_transformer.decoder import Decoder
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode


def form(width: int = 16, heads: int = 4, **more: object) -> Form:
    return Form(width=width, heads=heads, feed=4 * width, **more)  # type: ignore[arg-type]


class Watch(nn.Module):
    """Hangs on the weights, and keeps them."""

    seen: Tensor

    def forward(self, x: Tensor) -> Tensor:
        self.seen = x
        return x


def watched(attention: Attention) -> Watch:
    watch = Watch()
    attention.peg.add_module("watch", watch)
    return watch


@pytest.mark.catalogue("S4-095")
@pytest.mark.parametrize("causal", [False, True])
def test_scaled_dot_products_give_convex_combinations_of_the_values(causal: bool) -> None:
    attention, x = Attention(form(heads=1)), torch.randn(2, 7, 16)
    q, k, v = attention.project(x)
    weights = attention.weights(q, k, causal=causal)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 1, 7), atol=1e-6, rtol=0)
    torch.testing.assert_close(
        weights @ v, F.scaled_dot_product_attention(q, k, v, is_causal=causal), atol=1e-5, rtol=0
    )
    scores = torch.einsum("bhid,bhjd->bhij", q, k) / math.sqrt(16)
    if causal:
        scores = scores.masked_fill(torch.ones(7, 7).triu(1).bool(), -math.inf)
    torch.testing.assert_close(weights, scores.softmax(-1), atol=1e-6, rtol=1e-5)
    read = weights @ v
    assert (read <= v.amax(2, keepdim=True) + 1e-5).all() and (read >= v.amin(2, keepdim=True) - 1e-5).all()
    constant = torch.randn(1, 1, 1, 16).expand_as(v)
    torch.testing.assert_close(weights @ constant, constant)


@pytest.mark.catalogue("S4-096")
@pytest.mark.parametrize("width", [4, 64, 256])
def test_dividing_by_the_root_of_the_width_keeps_products_at_variance_one(width: int) -> None:
    """Two keys for each query: the log of the ratio of their weights is the difference of their scores."""
    generator = torch.Generator().manual_seed(width)
    attention, count = Attention(form(width=width, heads=1)), 50_000
    q = torch.randn(count, 1, 1, width, generator=generator)
    k = torch.randn(count, 1, 2, width, generator=generator)

    def variance(scale: float) -> float:
        weights = attention.weights(scale * q, k).double()[:, 0, 0]
        return float((weights[:, 0].log() - weights[:, 1].log()).var()) / 2

    assert 0.97 < variance(1.0) < 1.03
    if width == 4:  # as if nothing had divided; at more features such weights vanish, and their logarithms
        assert 0.97 < variance(math.sqrt(width)) / width < 1.03
    assert 0.97 < float((q * k[:, :, :1]).sum(-1).var()) / width < 1.03


@pytest.mark.catalogue("S4-096")
def test_without_the_division_one_key_has_nearly_all_the_weight() -> None:
    generator = torch.Generator().manual_seed(0)
    attention = Attention(form(width=512, heads=1))
    q, k = torch.randn(2, 1, 1, 64, 512, generator=generator)
    assert attention.weights(q, k).amax(-1).mean() < 0.2
    assert attention.weights(q * math.sqrt(512), k).amax(-1).mean() > 0.8  # as if nothing had divided


@pytest.mark.catalogue("S4-097")
def test_a_sharp_query_reads_the_value_of_its_key() -> None:
    attention = Attention(form(heads=1))
    keys = F.normalize(torch.randn(1, 1, 9, 16, generator=torch.Generator().manual_seed(1)), dim=-1)
    values = torch.randn(1, 1, 9, 16)
    scale = math.sqrt(16)  # undoes the division, so that 1000 is the inverse temperature
    torch.testing.assert_close(
        attention.weights(1000 * scale * keys, keys) @ values, values, atol=1e-5, rtol=0
    )
    mean = values.mean(2, keepdim=True).expand_as(values)
    torch.testing.assert_close(attention.weights(0 * keys, keys) @ values, mean)


@pytest.mark.catalogue("S4-098")
@pytest.mark.parametrize("bias", [False, True])
def test_several_heads_are_those_of_torch(bias: bool) -> None:
    attention = Attention(form(bias=bias, qkv_bias=bias))
    reference = nn.MultiheadAttention(16, 4, bias=bias, batch_first=True)
    assert sum(p.numel() for p in attention.parameters()) == 4 * 16 * 16 + (4 * 16 if bias else 0)
    state = reference.state_dict()
    names = {"in_proj_": "qkv.", "out_proj.": "out."}
    attention.load_state_dict({
        next(new + n.removeprefix(old) for old, new in names.items() if n.startswith(old)): t
        for n, t in state.items()
    })  # fmt: skip
    x = torch.randn(3, 7, 16)
    torch.testing.assert_close(attention(x), reference(x, x, x)[0], atol=1e-5, rtol=0)
    lasts = torch.arange(7) < torch.tensor([7, 3, 1]).unsqueeze(1)
    masked = reference(x, x, x, key_padding_mask=~lasts)[0]
    torch.testing.assert_close(attention(x, key_mask(lasts)), masked, atol=1e-5, rtol=0)
    later = torch.ones(7, 7).triu(1).bool()
    looking_back = reference(x, x, x, attn_mask=later)[0]
    torch.testing.assert_close(attention(x, causal=True), looking_back, atol=1e-5, rtol=0)


@pytest.mark.catalogue("S4-098")
def test_one_head_with_an_identity_at_the_end_is_plain_attention() -> None:
    attention, x = Attention(form(heads=1, bias=False, qkv_bias=False)), torch.randn(2, 5, 16)
    nn.init.eye_(attention.out.weight)
    q, k, v = attention.qkv(x).chunk(3, -1)
    plain = torch.softmax(q @ k.transpose(1, 2) / 4, -1) @ v
    torch.testing.assert_close(attention(x), plain, atol=1e-5, rtol=0)


@pytest.mark.catalogue("S4-099")
def test_one_joint_map_is_that_of_every_head_for_itself() -> None:
    attention, x = Attention(form()), torch.randn(2, 5, 16)
    state = separate(attention.state_dict())
    assert state["query.weight"].shape == state["value.weight"].shape == (16, 16)
    heads = []
    for head in range(4):  # twelve maps of width 4
        rows = slice(4 * head, 4 * head + 4)
        q, k, v = (
            F.linear(x, state[f"{part}.weight"][rows], state[f"{part}.bias"][rows])
            for part in ("query", "key", "value")
        )
        heads.append(torch.softmax(q @ k.transpose(1, 2) / 2, -1) @ v)
    torch.testing.assert_close(attention(x), attention.out(torch.cat(heads, -1)), atol=1e-6, rtol=0)
    back = fused(state)
    assert back.keys() == attention.state_dict().keys()
    assert all(torch.equal(back[name], tensor) for name, tensor in attention.state_dict().items())


@pytest.mark.catalogue("S4-100")
def test_cross_attention_follows_its_queries_and_ignores_the_order_of_the_context() -> None:
    attention = Attention(form(), context=6)
    a, b = torch.randn(2, 5, 16), torch.randn(2, 9, 6)
    y = attention(a, context=b)
    assert y.shape == (2, 5, 16)
    mixed, turned = torch.randperm(9), torch.tensor([1, 2, 0, 3, 4])
    torch.testing.assert_close(attention(a, context=b[:, mixed]), y, atol=1e-5, rtol=0)
    torch.testing.assert_close(attention(a[:, turned], context=b), y[:, turned], atol=1e-5, rtol=0)


@pytest.mark.catalogue("S4-100")
def test_cross_attention_of_a_sequence_to_itself_is_self_attention() -> None:
    cross, own, a = Attention(form(), context=16), Attention(form()), torch.randn(2, 5, 16)
    state = own.state_dict()
    for end in ("weight", "bias"):
        state[f"query.{end}"], state[f"kv.{end}"] = state.pop(f"qkv.{end}").split((16, 32))
    cross.load_state_dict(state)
    torch.testing.assert_close(cross(a, context=a), own(a), atol=1e-5, rtol=0)


def test_weights_that_something_hangs_on_give_what_the_fused_kernel_gives() -> None:
    attention, x = Attention(form()), torch.randn(3, 7, 16)
    lasts = torch.arange(7) < torch.tensor([7, 3, 0]).unsqueeze(1)
    asked = [
        {},
        {"causal": True},
        {"mask": key_mask(lasts)},
        {"mask": causal_mask(7, lasts=lasts, window=3)},
    ]
    fast = [attention(x, **how) for how in asked]  # type: ignore[arg-type]
    watch = watched(attention)
    for how, expected in zip(asked, fast, strict=True):
        torch.testing.assert_close(attention(x, **how), expected, atol=1e-6, rtol=1e-5)  # type: ignore[arg-type]
        assert watch.seen.shape == (3, 4, 7, 7)
    assert (watch.seen[1, :, 2, 3:] == 0).all()


def test_dropout_on_weights_drops_that_share_and_is_exact_at_zero() -> None:
    attention, x = Attention(form()), torch.randn(2, 6, 16)
    plain = attention(x)
    attention.peg.add_module("dropout", nn.Dropout(0.0))
    assert torch.equal(attention(x), plain)
    attention.peg._modules["dropout"] = nn.Dropout(0.5)
    nn.init.eye_(attention.out.weight)
    nn.init.zeros_(attention.out.bias)
    generator = torch.Generator().manual_seed(0)
    q, k = torch.randn(2, 1, 4, 200, 4, generator=generator)
    kept = attention.attend(q, k, torch.ones(1, 4, 200, 4), None, False)
    assert kept.std() > 0.01 and abs(kept.mean().item() - 1) < 0.05  # a mean that is kept, by fewer weights
    attention.eval()
    torch.testing.assert_close(
        attention.attend(q, k, torch.ones(1, 4, 200, 4), None, False), torch.ones(1, 200, 16)
    )


def test_dropout_that_someone_watches_is_called() -> None:
    attention, called = Attention(form()), []
    attention.peg.add_module("dropout", nn.Dropout(0.5))
    attention.peg._modules["dropout"].register_forward_pre_hook(lambda m, a: called.append(a[0].shape))  # type: ignore[union-attr]
    attention(torch.randn(2, 6, 16))
    assert called == [(2, 4, 6, 6)]


@pytest.mark.parametrize("explicit", [False, True])
def test_a_row_of_padding_alone_gives_numbers_and_gradients(explicit: bool) -> None:
    attention = Attention(form())
    if explicit:
        watched(attention)
    lasts = torch.zeros(2, 5, dtype=torch.bool)
    lasts[0, :3] = True
    assert key_mask(lasts).sum((1, 2, 3)).tolist() == [3, 5]  # no row without a key
    for mask in (key_mask(lasts), causal_mask(5, lasts=lasts), causal_mask(5, lasts=lasts.flip(1))):
        x = torch.randn(2, 5, 16, requires_grad=True)
        attention(x, mask).square().sum().backward()
        assert x.grad is not None and x.grad.isfinite().all()


def test_a_window_shows_the_last_places_and_queries_may_be_fewer_than_keys() -> None:
    places = torch.arange(6)
    seen = (places[:, None] >= places) & (places[:, None] - places < 3)
    assert torch.equal(causal_mask(6, window=3)[0, 0], seen)
    assert torch.equal(causal_mask(2, 6, window=3)[0, 0], seen[4:])


@pytest.mark.catalogue("S4-094")
def test_attention_costs_the_square_of_the_length_and_a_step_with_a_cache_grows_by_the_same_each_time() -> (
    None
):
    attention, length = Attention(form()), 12
    watch = watched(attention)
    attention(torch.randn(1, length, 16))
    assert watch.seen.numel() == 4 * length**2
    model = Decoder(7, 64, 2, form(), positions="rotary").eval()
    for block in model.stack.blocks:  # weights that are made, so that their operations count
        watched(block.attention)  # type: ignore[arg-type]

    def operations(places: int) -> int:
        with torch.no_grad():
            _, state = model._begin(torch.zeros(1, places, dtype=torch.long), None)
            with FlopCounterMode(display=False) as counter:
                model._step(torch.zeros(1, dtype=torch.long), state)
        return counter.get_total_flops()

    costs = [operations(places) for places in (8, 16, 24, 32)]
    growth = {b - a for a, b in pairwise(costs)}
    assert growth == {2 * 2 * 2 * 16 * 8}  # blocks, products, a multiplication and an addition, width, places
