"""Each of the five tricks alone, on every model of the plugin and every kind of data it reads."""

import pytest
import torch
from pegboard import pegs
from pegboard.config.check import check
from pegboard.engine.precision import choose_precision
from pegboard.engine.step import link
from pegboard.planning import assemble, make_plan
from pegboard.testing.subjects import PARTNER, partner_config, partner_run

IMAGE = {"inputs": "image"}
CASES = {
    "cnn": ({"name": "cnn", "channels": [3, 4], "hidden": [5]}, IMAGE),
    "series": ({"name": "cnn", "channels": [3, 4], "hidden": [5]}, {"form": "lines"}),
    "text": ({"name": "cnn", "channels": 3, "kernel": [2, 3], "branches": True}, {"form": "padded"}),
    "solids": ({"name": "cnn", "channels": [3], "hidden": [5]}, {"form": "voxels"}),
    "lenet": ({"name": "lenet"}, IMAGE),
    "resnet": ({"name": "resnet", "depth": 8, "width": 4}, IMAGE),
    "densenet": ({"name": "densenet", "depth": 10, "growth": 4}, IMAGE),
}
TRICKS = {
    "batchnorm": {"eps": 0.1},
    "dropout": {"p": 0.3},
    "weight_decay": {"value": 0.05},
    "label_smoothing": {"epsilon": 0.1},
    "distillation": {"alpha": 0.5, "temperature": 2.0},
}


@pytest.fixture(scope="module")
def teachers(tmp_path_factory):
    """Short runs on pictures and on text."""
    folder, found = tmp_path_factory.mktemp("teachers"), {}
    for case in ("cnn", "text"):
        model, data = CASES[case]
        nodes = {"data": {"name": PARTNER, "batch_size": 8, **data}, "objective": {"name": "cross_entropy"}}
        found[str(data)] = str(partner_run(folder, model=model, **nodes))
    return found


def trained(case, **tricks):
    """All that is learned in three steps."""
    model, data = CASES[case]
    given = partner_config(
        data={"name": PARTNER, "batch_size": 8, **data},
        model=model,
        objective={"name": "cross_entropy"},
        regularizers=tricks,
        trainer={"steps": 3, "device": "cpu"},
    )
    assembly = assemble(make_plan(check(given), read=True), "cpu")
    assembly.model.train()
    (kit,), splits = assembly.kits, assembly.plan.splits
    update = link(assembly, kit, choose_precision("fp32", "cpu")).update
    for step in range(3):
        update([splits.train.gather(torch.arange(8 * step, 8 * step + 8))], step)
    return assembly.model


@pytest.mark.parametrize("case", CASES)
def test_each_trick_alone_acts_on_every_model(case, teachers):
    plain = trained(case).state_dict()
    teacher = teachers.get(str(CASES[case][1]))
    for name, fields in TRICKS.items():
        if name == "distillation" and teacher is None:
            continue  # it sees outputs alone, which are those of pictures and of text
        more = {"teacher": teacher} if name == "distillation" else {}
        model = trained(case, **{name: {**fields, **more}})
        state = model.state_dict()
        assert all(value.isfinite().all() for value in state.values()), name
        shared = [key for key in plain if key in state]
        assert any(not torch.equal(plain[key], state[key]) for key in shared), name
        hung = [peg for _, peg in pegs.find(model) if name in peg._modules]
        if name in ("batchnorm", "dropout"):
            site = "affine" if name == "batchnorm" else "hidden"
            assert hung == [peg for _, peg in pegs.find(model) if peg.site == site]
            assert not any(hasattr(peg, "norm") for peg in hung)  # the network's own has made way
        else:
            assert not hung
