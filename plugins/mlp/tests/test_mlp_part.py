"""The records: schema, checks, and what build makes of a context."""

import pegboard_mlp
import pytest
import torch
from light import loaded
from pegboard import Classes, Context, DataSpec, Facts, Image, Peg, PegboardError, Series, Values, Vector
from pegboard_mlp import Linear, Mlp, Threshold

PARTS = {part.name: part for part in pegboard_mlp.pegboard_models()}
FITTING = {"threshold": Threshold(thresholds=(1.0, 2.0, 3.0))}  # where defaults do not fit three outputs


def context(*inputs, outputs=3, target=None):
    return Context(spec=DataSpec(inputs, target or Classes(3)), outputs=outputs)


def test_importing_the_plugin_imports_neither_torch_nor_numpy():
    assert not loaded("import pegboard_mlp as p; p.pegboard_models()")


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize("spec", [Vector(12), Image(3, 2, 2), Series(4, 3)])
def test_sizes_come_from_the_data_and_the_objective(name, spec):
    part = PARTS[name]
    assert isinstance(spec, part.inputs)
    model = part.build(FITTING.get(name, part.config()), context(spec, outputs=3))
    assert model(spec.example(5, "cpu")).shape == (5, 3)
    assert model(torch.randn_like(spec.example(5, "cpu"))).isfinite().all()


def test_the_config_reaches_the_module():
    part = PARTS["mlp"]
    config = Mlp(
        hidden=(6, 6), activation="polynomial", bias=False, form="residual", polynomial=(1.0, 2.0, 3.0)
    )
    model = part.build(config, context(Vector(4), outputs=1))
    names = dict(model.named_parameters())
    assert list(names) == [
        "body.1.branch.0.weight",
        "body.1.project.weight",
        "body.2.branch.0.weight",
        "head.weight",
    ]
    x = torch.randn(5, 4)

    def branch(h, weight):
        z = h @ weight.T
        return 2 * z + 3 * z**2

    h = x @ names["body.1.project.weight"].T + branch(x, names["body.1.branch.0.weight"])
    h = h + branch(h, names["body.2.branch.0.weight"])
    torch.testing.assert_close(model(x), h @ names["head.weight"].T)
    slope = part.build(Mlp(hidden=(6,), activation="leaky_relu", alpha=0.5), context(Vector(4)))
    assert slope.body[3].negative_slope == 0.5
    zero = PARTS["linear"].build(Linear(bias=False, init="zeros"), context(Vector(4)))
    assert [n for n, p in zero.named_parameters() if not p.any()] == ["head.weight"]


def test_the_record_names_every_site_the_forms_have():
    found = set()
    for form in ("plain", "residual", "dense"):
        model = PARTS["mlp"].build(Mlp(form=form), context(Vector(4)))
        found |= {m.site for m in model.modules() if isinstance(m, Peg)}
    assert found == set(PARTS["mlp"].pegs)
    model = PARTS["linear"].build(Linear(), context(Vector(4)))
    assert {m.site for m in model.modules() if isinstance(m, Peg)} == set(PARTS["linear"].pegs)


@pytest.mark.parametrize("name", PARTS)
def test_data_it_cannot_read_is_explained(name):
    part = PARTS[name]
    with pytest.raises(PegboardError, match=f"{name} reads one input, and the data gives 2"):
        part.build(part.config(), context(Vector(4), Vector(3)))
    with pytest.raises(PegboardError, match=r"how many numbers a sample has, and Vector\(\?\) does not say"):
        part.build(part.config(), context(Vector(None)))
    with pytest.raises(PegboardError, match=r"how many numbers to predict.*Values\(\?"):
        part.build(part.config(), context(Vector(4), outputs=None, target=Values(None)))
    facts = Facts(spec=DataSpec((Vector(4), Vector(3)), Classes(2)))
    assert "reads one input" in next(iter(part.check(part.config(), facts))).message
    assert list(part.check(part.config(), Facts(spec=DataSpec((Vector(4),), Classes(2))))) == []
    assert list(part.check(part.config(), Facts())) == []
    for padded in (False, True):
        facts = Facts(spec=DataSpec((Series(2, 2, padded),), Classes(2)))
        assert ["end early" in p.message for p in part.check(part.config(), facts)] == [True] * padded


@pytest.mark.parametrize(
    ("config", "fields"),
    [
        (Mlp(activation="relu", alpha=0.5), ["alpha"]),
        (Mlp(activation="softplus", alpha=0.0), ["alpha"]),
        (Mlp(activation="tanh", polynomial=(1.0, 1.0)), ["polynomial"]),
        (Mlp(activation="tanh", polynomial=(1.0, 1.0), alpha=1.0), ["alpha", "polynomial"]),
        (Mlp(activation="elu", alpha=0.5), []),
        (Mlp(activation="polynomial", polynomial=(1.0, 1.0)), []),
        (Mlp(hidden=()), []),
    ],
)
def test_numbers_without_an_activation_to_take_them_are_found(config, fields):
    assert [problem.field for problem in PARTS["mlp"].check(config, Facts())] == fields
