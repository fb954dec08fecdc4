"""The recurrent network: its heads, directions and layers, samples of different lengths, pictures."""

from __future__ import annotations

import pytest
import torch
from pegboard import Classes, Context, DataSpec, Image, PegboardError, Series, Spec, Tokens, Values
from pegboard_rnn import Rnn as Config
from pegboard_rnn import build_rnn
from pegboard_rnn.model import Rnn
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

CELLS: dict[str, dict[str, object]] = {
    "elman": {"cell": "elman"},
    "transition": {"cell": "elman", "transition": 2},
    "lstm": {"cell": "lstm"},
    "output_matrix": {"cell": "lstm", "output_matrix": True},
    "gru": {"cell": "gru"},
    "reset_before": {"cell": "gru", "reset": "before"},
    "mingru": {"cell": "mingru"},
    "mingru_blocks": {"cell": "mingru", "block": True},
    "lru": {"cell": "lru"},
}
KINDS = ("elman", "lstm", "gru", "mingru", "lru")
TORCHS: dict[str, type[nn.RNNBase]] = {"elman": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}
FEATURES, LENGTH, HIDDEN = 3, 8, 5
SERIES, PADDED, TEXT = Series(LENGTH, FEATURES), Series(LENGTH, FEATURES, True), Tokens(7, LENGTH, 0)
LENGTHS = torch.tensor([8, 3, 1, 6])


def built(read: Spec, target: Spec, **fields: object) -> Rnn:
    config = Config(**{"hidden": HIDDEN, **fields})  # type: ignore[arg-type]
    model = build_rnn(config, Context(spec=DataSpec((read,), target), outputs=target.size))
    assert isinstance(model, Rnn)
    return model.eval()


def samples(read: Spec) -> Tensor:
    """Four samples of different lengths, if they may differ."""
    over = torch.arange(LENGTH) >= LENGTHS.unsqueeze(1)
    if isinstance(read, Tokens):
        tokens = torch.randint(1, 7, (4, LENGTH))
        return tokens.masked_fill(over, 0) if read.padding == 0 else tokens
    x = torch.randn(4, LENGTH, FEATURES)
    return x.masked_fill(over.unsqueeze(-1), torch.nan) if read == PADDED else x


@pytest.mark.catalogue("S4-075")
@pytest.mark.parametrize("name", CELLS)
def test_a_label_for_every_step_the_next_value_and_one_of_the_whole_share_a_core(name: str) -> None:
    x = samples(SERIES)
    labels, ahead, one = (
        built(SERIES, target, layers=2, **CELLS[name])
        for target in (Tokens(6, LENGTH), Series(LENGTH, FEATURES), Classes(6))
    )
    assert labels(x).shape == (4, LENGTH, 6) and ahead(x).shape == (4, LENGTH, FEATURES)
    assert one(x).shape == (4, 6)
    one.load_state_dict(labels.state_dict())  # the same core and the same head, read at the last step alone
    torch.testing.assert_close(one(x), labels(x)[:, -1], atol=1e-6, rtol=0)
    assert built(SERIES, Values(2), **CELLS[name])(x).shape == (4, 2)


@pytest.mark.catalogue("S4-075", "S4-080")
@pytest.mark.parametrize("name", CELLS)
def test_outputs_of_a_beginning_are_the_first_outputs_of_the_whole(name: str) -> None:
    model, x = built(SERIES, Tokens(4, LENGTH), layers=2, **CELLS[name]), samples(SERIES)
    y = model(x)
    for length in (1, 2, 5, 7):
        torch.testing.assert_close(model(x[:, :length]), y[:, :length], atol=1e-6, rtol=0)
    changed = x.clone()
    changed[:, 5:] += 1
    assert torch.equal(model(changed)[:, :5], y[:, :5])
    assert (model(changed)[:, 5:] - y[:, 5:]).abs().amin(1).max() > 1e-5
    longer = torch.cat((x, x, x), 1)  # beyond the length of the data
    torch.testing.assert_close(model(longer)[:, :LENGTH], y, atol=1e-6, rtol=0)


def reference(model: Rnn, cell: str, layers: int, both: bool) -> nn.RNNBase:
    """Torch's own, whose weights the model adopts."""
    found = TORCHS[cell](FEATURES, HIDDEN, layers, batch_first=True, bidirectional=both)  # type: ignore[call-arg]
    left = model.load_state_dict(model.adopt(found.state_dict()), strict=False)
    assert not left.unexpected_keys and set(left.missing_keys) == {"head.weight", "head.bias"}
    return found


@pytest.mark.catalogue("S4-076", "S4-078", "S4-079")
@pytest.mark.parametrize("both", [False, True], ids=["forward", "both"])
@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("cell", TORCHS)
def test_layers_and_directions_are_those_of_torch(cell: str, layers: int, both: bool) -> None:
    model = built(SERIES, Classes(2), cell=cell, layers=layers, bidirectional=both)
    theirs, x = reference(model, cell, layers, both), samples(SERIES)
    expected, ends = theirs(x)
    found, states, _ = model.states(x)
    assert found.shape == (4, LENGTH, HIDDEN * (1 + both))
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)
    last = ends[0] if cell == "lstm" else ends
    torch.testing.assert_close(states[-1][0], last[-1 - both], atol=1e-6, rtol=0)
    pooled = torch.cat((last[-2], last[-1]), -1) if both else last[-1]  # what each direction ends with
    torch.testing.assert_close(model(x), model.head(pooled), atol=1e-6, rtol=0)


@pytest.mark.parametrize("both", [False, True], ids=["forward", "both"])
@pytest.mark.parametrize("cell", TORCHS)
def test_padded_samples_are_those_that_torch_packs(cell: str, both: bool) -> None:
    model = built(PADDED, Classes(2), cell=cell, layers=2, bidirectional=both)
    theirs, x = reference(model, cell, 2, both), samples(PADDED)
    packed = pack_padded_sequence(x.nan_to_num(), LENGTHS, batch_first=True, enforce_sorted=False)
    out, ends = theirs(packed)
    expected, _ = pad_packed_sequence(out, batch_first=True, total_length=LENGTH)
    h, _, mask = model.states(x)
    assert mask is not None and torch.equal(mask.sum(1), LENGTHS)
    torch.testing.assert_close(h[mask], expected[mask], atol=1e-6, rtol=0)
    last = ends[0] if cell == "lstm" else ends
    pooled = torch.cat((last[-2], last[-1]), -1) if both else last[-1]
    torch.testing.assert_close(model(x), model.head(pooled), atol=1e-6, rtol=0)


@pytest.mark.catalogue("S4-076")
def test_an_elman_network_without_biases_has_the_weights_of_its_three_matrices() -> None:
    model = built(SERIES, Tokens(4, LENGTH), cell="elman", bias=False)
    assert sum(p.numel() for p in model.parameters()) == HIDDEN**2 + HIDDEN * FEATURES + 4 * HIDDEN


@pytest.mark.catalogue("S4-094")
@pytest.mark.parametrize("cell", KINDS)
def test_the_thousandth_step_costs_what_the_tenth_does(cell: str) -> None:
    model, spent = built(TEXT, TEXT, cell=cell), {}
    token, states = torch.ones(1, dtype=torch.long), None
    with torch.no_grad():
        for step in range(1, 1001):
            if step not in (10, 1000):
                _, states = model.step(token, states)
            else:
                with FlopCounterMode(display=False) as counter:
                    _, states = model.step(token, states)
                kept = sum(t.numel() for t in pytree.tree_leaves(states) if isinstance(t, Tensor))
                spent[step] = (counter.get_total_flops(), kept)
    assert spent[10] == spent[1000] and min(spent[10]) > 0


@pytest.mark.catalogue("S4-078")
@pytest.mark.parametrize("cell", KINDS)
def test_with_both_directions_every_step_depends_on_every_step(cell: str) -> None:
    model = built(SERIES, Tokens(4, LENGTH), cell=cell, bidirectional=True)
    x = samples(SERIES)[:1]

    def depends(model: Rnn) -> Tensor:
        jacobian = torch.autograd.functional.jacobian(model, x)[0, :, :, 0]  # type: ignore[index]
        return jacobian.abs().amax((1, 3)) > 1e-9  # type: ignore[no-any-return,union-attr]

    assert depends(model).all()
    one = built(SERIES, Tokens(4, LENGTH), cell=cell)
    assert torch.equal(depends(one), torch.ones(LENGTH, LENGTH).tril().bool())


@pytest.mark.catalogue("S4-078")
@pytest.mark.parametrize("cell", ["elman", "lstm", "gru", "mingru"])
def test_with_the_same_weights_reversing_the_input_swaps_the_directions(cell: str) -> None:
    model, x = built(SERIES, Tokens(4, LENGTH), cell=cell, bidirectional=True), samples(SERIES)
    layer = model.layers[0]
    layer.back.load_state_dict(layer.cell.state_dict())  # type: ignore[union-attr,operator]
    h, turned = model.states(x)[0], model.states(x.flip(1))[0]
    assert h.shape[-1] == 2 * HIDDEN
    torch.testing.assert_close(turned.flip(1), h.roll(HIDDEN, -1), atol=1e-6, rtol=0)


@pytest.mark.parametrize("read", [PADDED, TEXT], ids=["series", "text"])
@pytest.mark.parametrize("both", [False, True], ids=["forward", "both"])
@pytest.mark.parametrize("name", CELLS)
def test_no_output_depends_on_what_fills_a_sample_up(name: str, both: bool, read: Spec) -> None:
    x = samples(read)
    for target, fields in ((Classes(3), {}), (Classes(3), {"pool": "mean"}), (Tokens(4, LENGTH), {})):
        model = built(read, target, layers=2, bidirectional=both, **CELLS[name], **fields)
        y = model(x)
        for row, length in enumerate(LENGTHS.tolist()):
            alone = model(x[row : row + 1, :length])
            expected = y[row : row + 1] if isinstance(target, Classes) else y[row : row + 1, :length]
            torch.testing.assert_close(alone, expected, atol=1e-6, rtol=0)


class Operations(TorchDispatchMode):
    """Counts what torch is asked to do."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        self.count += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("both", [False, True], ids=["forward", "both"])
@pytest.mark.parametrize("cell", KINDS)
def test_samples_of_different_lengths_are_never_read_one_by_one(cell: str, both: bool) -> None:
    model, counts = built(PADDED, Classes(3), cell=cell, bidirectional=both), []
    for times in (1, 12):
        with Operations() as seen, torch.no_grad():
            model(samples(PADDED).repeat(times, 1, 1))
        counts.append(seen.count)
    assert counts[0] == counts[1]


@pytest.mark.parametrize("cell", ["mingru", "lru"])
def test_all_steps_of_a_linear_cell_take_as_many_operations_as_their_logarithm(cell: str) -> None:
    model, counts = built(SERIES, Classes(3), cell=cell), {}
    for length in (64, 128, 256, 1024):
        with Operations() as seen, torch.no_grad():
            model(torch.randn(2, length, FEATURES))
        counts[length] = seen.count
    a_round = counts[128] - counts[64]
    assert counts[256] - counts[128] == a_round and counts[1024] - counts[256] == 2 * a_round


def test_a_sample_without_any_step_gives_something_finite() -> None:
    for name in CELLS:
        for pool in ("last", "mean"):
            model = built(PADDED, Classes(3), pool=pool, bidirectional=True, **CELLS[name])
            assert model(torch.full((2, LENGTH, FEATURES), torch.nan)).isfinite().all()


@pytest.mark.parametrize(
    ("image", "steps", "width"), [("rows", 4, 2 * 6), ("columns", 6, 2 * 4), ("pixels", 24, 2)]
)
def test_a_picture_is_read_step_by_step_with_all_its_channels(image: str, steps: int, width: int) -> None:
    model, x = built(Image(2, 4, 6), Classes(3), image=image), torch.randn(3, 2, 4, 6)
    read, mask = model.read(x)
    assert mask is None and read.shape == (3, steps, width) and model.read.width == width
    place = {"rows": x[:, :, 1].flatten(1), "columns": x[..., 1].flatten(1), "pixels": x[:, :, 0, 1]}[image]
    torch.testing.assert_close(read[:, 1].sort(-1).values, place.sort(-1).values)
    assert model(x).shape == (3, 3)
    for cell in KINDS:
        assert built(Image(2, 4, 6), Classes(3), image=image, cell=cell)(x).shape == (3, 3)


def test_a_mean_is_over_the_steps_of_each_sample() -> None:
    model, x = built(PADDED, Classes(3), pool="mean"), samples(PADDED)
    h = model.states(x)[0]
    for row, length in enumerate(LENGTHS.tolist()):
        torch.testing.assert_close(model(x)[row], model.head(h[row, :length].mean(0)), atol=1e-6, rtol=0)


def test_a_block_is_a_residual_around_norm_cell_and_gate() -> None:
    model, x = built(SERIES, Tokens(4, LENGTH), cell="lru", layers=2), samples(SERIES)
    assert model.enter is not None
    h = model.enter(x)
    for block in model.layers:
        norm: nn.LayerNorm = block.affine.norm  # type: ignore[assignment,union-attr]
        z, _ = block.cell(nn.functional.layer_norm(h, (HIDDEN,), norm.weight, norm.bias))  # type: ignore[operator]
        value, gate = block.mix(nn.functional.gelu(z)).chunk(2, -1)  # type: ignore[operator]
        h = h + value * gate.sigmoid()
    torch.testing.assert_close(model(x), model.head(h), atol=1e-5, rtol=0)
    plain = built(SERIES, Tokens(4, LENGTH), cell="lru", block=False)
    assert plain.enter is None and not any("mix" in name for name in plain.state_dict())


def test_parameters_are_those_of_the_equation() -> None:
    model = built(SERIES, Classes(6), cell="elman", bias=False)
    assert sum(p.numel() for p in model.parameters()) == HIDDEN**2 + HIDDEN * FEATURES + 6 * HIDDEN


@pytest.mark.parametrize("prefix", ["", "lstm.", "encoder.rnn."])
def test_weights_of_torch_are_known_by_their_names_whatever_stands_before_them(prefix: str) -> None:
    model = built(SERIES, Classes(2), layers=2, bidirectional=True)
    theirs = nn.LSTM(FEATURES, HIDDEN, 2, bidirectional=True)
    given = {prefix + name: value for name, value in theirs.state_dict().items()}
    found = model.adopt({**given, "head.bias": torch.ones(2)})
    assert set(found) == set(model.state_dict()) - {"head.weight"}
    torch.testing.assert_close(found["layers.1.back.kernel.bias_hh_l0"], theirs.bias_hh_l1_reverse)
    own = model.state_dict()
    assert model.adopt(own).keys() == own.keys()


def test_inputs_of_unknown_size_and_unknown_outputs_are_named() -> None:
    with pytest.raises(PegboardError, match="series, symbols or pictures of known size"):
        built(Series(None, None), Classes(3))
    with pytest.raises(PegboardError, match="how many numbers to predict"):
        build_rnn(Config(), Context(spec=DataSpec((SERIES,), Classes(None)), outputs=None))
