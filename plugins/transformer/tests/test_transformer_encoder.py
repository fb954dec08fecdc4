"""The encoder: padding, pools, steps and series."""

from __future__ import annotations

import pytest
import torch
from pegboard import Classes, Context, DataSpec, Series, Tokens, Values
from pegboard_transformer import Encoder as Config
from pegboard_transformer import build_encoder
from pegboard_transformer.encoder import Encoder
from torch import Tensor, nn

TEXT = Tokens(9, 6, 0)


def built(spec: DataSpec, **fields: object) -> Encoder:
    config = Config(**{"layers": 2, "width": 16, "heads": 4, **fields})  # type: ignore[arg-type]
    model = build_encoder(config, Context(spec=spec, outputs=spec.target and spec.target.size))
    assert isinstance(model, Encoder)
    for p in model.parameters():
        p.data += 0.2 * torch.randn_like(p)
    return model.eval()


def texts() -> Tensor:
    tokens = torch.randint(1, 9, (3, 6))
    return tokens.masked_fill(torch.arange(6) >= torch.tensor([[6], [3], [1]]), 0)


@pytest.mark.parametrize("positions", ["learned", "sinusoidal", "rotary", "none"])
@pytest.mark.parametrize("pool", ["mean", "token"])
def test_padding_never_matters(pool: str, positions: str) -> None:
    model, tokens = built(DataSpec((TEXT,), Classes(3)), pool=pool, positions=positions), texts()
    y = model(tokens)
    assert y.shape == (3, 3)
    torch.testing.assert_close(model(tokens[1:, :3]), y[1:], atol=1e-5, rtol=0)
    torch.testing.assert_close(model(tokens[2:, :1]), y[2:], atol=1e-5, rtol=0)
    assert (model(tokens[:, [1, 0, 2, 3, 4, 5]]) - y)[0].abs().max() > 1e-3 or positions == "none"


def test_steps_have_an_answer_each_and_see_both_sides() -> None:
    model, tokens = built(DataSpec((TEXT,), Tokens(4, 6))), texts()
    y = model(tokens)
    assert y.shape == (3, 6, 4)
    torch.testing.assert_close(model(tokens[1:, :3]), y[1:, :3], atol=1e-5, rtol=0)
    tokens[0, 5] = tokens[0, 5] % 8 + 1
    assert ((model(tokens) - y)[0].abs().amax(-1) > 1e-5).all()


@pytest.mark.parametrize("pool", ["mean", "token"])
def test_series_are_mapped_and_their_end_is_not_read(pool: str) -> None:
    model = built(DataSpec((Series(6, 3, True),), Values(2)), pool=pool)
    x = torch.randn(3, 6, 3)
    x[1, 3:] = torch.nan
    y = model(x)
    assert y.shape == (3, 2)
    torch.testing.assert_close(model(x[1:2, :3]), y[1:2], atol=1e-5, rtol=0)
    steps = built(DataSpec((Series(6, 3),), Series(6, 2)))
    assert steps(torch.randn(2, 6, 3)).shape == (2, 6, 2)


def test_a_text_of_padding_alone_gives_numbers_and_gradients() -> None:
    for pool in ("mean", "token"):
        model = built(DataSpec((TEXT,), Classes(3)), pool=pool)
        model(torch.zeros(2, 6, dtype=torch.long)).square().sum().backward()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    lines = built(DataSpec((Series(6, 3, True),), Classes(3)))
    assert lines(torch.full((2, 6, 3), torch.nan)).isfinite().all()


def test_weights_of_torch_encoders_are_adopted() -> None:
    layer = nn.TransformerEncoderLayer(16, 4, 64, 0.0, "gelu", batch_first=True, norm_first=True)
    reference = nn.TransformerEncoder(layer, 2, nn.LayerNorm(16), enable_nested_tensor=False)
    for p in reference.parameters():
        p.data += 0.1 * torch.randn_like(p)
    model, tokens = built(DataSpec((TEXT,), Tokens(4, 6))), texts()
    state = model.adopt(reference.state_dict())
    left = model.load_state_dict(state, strict=False)
    assert not left.unexpected_keys
    assert {name.split(".")[0] for name in left.missing_keys} == {"embed", "head"}
    expected = model.head(reference(model.embed(tokens), src_key_padding_mask=tokens == 0))
    torch.testing.assert_close(model(tokens)[tokens > 0], expected[tokens > 0], atol=1e-5, rtol=0)
    assert model.adopt(model.state_dict()).keys() == model.state_dict().keys()
