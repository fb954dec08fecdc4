"""scikit-learn's data sets."""

from __future__ import annotations

import pytest
import torch
from light import loaded
from pegboard import Classes, PegboardError
from PIL import Image


@pytest.mark.parametrize("name", ["iris", "wine", "breast_cancer"])
def test_every_sample_of_scikit_learn_is_there_with_its_class(build, name):
    import sklearn.datasets

    bunch = getattr(sklearn.datasets, f"load_{name}")()
    splits = build(name, val=0, test=0, normalize="none")
    assert isinstance(splits.spec.target, Classes)
    assert splits.spec.target.names == tuple(bunch.target_names)
    assert splits.columns == tuple(bunch.feature_names)
    x, y = splits.train.inputs[0], splits.train.target
    order = sorted(range(len(x)), key=lambda i: (x[i].tolist(), y[i].item()))
    raw = torch.tensor(bunch.data).float()
    other = sorted(range(len(x)), key=lambda i: (raw[i].tolist(), int(bunch.target[i])))
    assert torch.equal(x[order], raw[other])
    assert torch.equal(y[order], torch.tensor(bunch.target)[other])


def test_diabetes_is_in_its_own_units(build):
    splits = build("diabetes", val=0, test=0, normalize="none")
    assert splits.columns == ("age", "sex", "bmi", "bp", "s1", "s2", "s3", "s4", "s5", "s6")
    age = splits.train.inputs[0][:, 0]
    assert (age.min(), age.max()) == (19, 79)
    assert splits.train.target.mean().item() == pytest.approx(152.13, abs=0.01)


def test_least_squares_on_diabetes_explains_half_of_the_variance(build):
    splits = build("diabetes")
    ones = [torch.cat([s.inputs[0], torch.ones(len(s), 1)], 1) for s in (splits.train, splits.test)]
    w = torch.linalg.lstsq(ones[0], splits.train.target).solution
    residual = ones[1] @ w - splits.test.target
    assert 1 - residual.var(correction=0) / splits.test.target.var(correction=0) > 0.35


def test_digits_look_like_their_class(build):
    import sklearn.datasets

    splits = build("digits", normalize="none", val=0, test=0)
    bunch = sklearn.datasets.load_digits()
    assert splits.columns == tuple(bunch.feature_names)
    images = torch.tensor(bunch.images).float() / 16
    total = splits.train.inputs[0].sum(0)[0]
    torch.testing.assert_close(total, images.sum(0), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("hidden", [False, True])
def test_digits_are_those_of_scikit_learn_with_and_without_its_import(monkeypatch, hidden):
    import sklearn.datasets
    from pegboard_datasets import embedded

    if hidden:
        monkeypatch.setattr(embedded, "find_spec", lambda name: None)
    rows, bunch = embedded._digit_rows(), sklearn.datasets.load_digits()
    assert (rows[:, :-1] == bunch.data).all() and (rows[:, -1] == bunch.target).all()


@pytest.mark.sweep
def test_reading_digits_imports_torch_and_numpy_alone():
    code = (
        "from pegboard import Context; from pegboard_datasets import pegboard_datasets;"
        "part = pegboard_datasets()[0]; assert part.name == 'digits'; part.build(part.config(), Context())"
    )
    heavy = ("torch", "sklearn", "scipy", "pandas", "PIL", "datasets", "pyarrow")
    assert loaded(code, heavy) == {"torch"}


def test_a_picture_file_of_a_digit_is_read_as_the_training_data(build, tmp_path):
    splits = build("digits")
    picture = splits.train.inputs[0][0, 0]
    stats = splits.notes["statistics"]["image"]
    grey = ((picture * stats["std"][0] + stats["mean"][0]) * 255).round().byte()
    Image.fromarray(grey.numpy()).save(tmp_path / "digit.png")
    (encoded,) = splits.encode({"image": [str(tmp_path / "digit.png")]})
    assert encoded.shape == (1, 1, 8, 8)
    torch.testing.assert_close(encoded[0, 0], picture, atol=0.01, rtol=0)


def test_a_table_with_a_missing_column_names_the_nearest(build):
    splits = build("wine")
    table = {name: [1.0] for name in splits.columns if name != "alcohol"} | {"Alcool": [1.0]}
    with pytest.raises(PegboardError, match="there is no column 'alcohol'; nearest: 'Alcool'"):
        splits.encode(table)


@pytest.mark.parametrize(("value", "found"), [("many", "'many'"), ("", "nothing"), ("nan", "'nan'")])
def test_a_table_with_something_else_than_numbers_says_where(build, value, found):
    splits = build("iris")
    table = {name: ["1.0", value] for name in splits.columns}
    with pytest.raises(PegboardError) as caught:
        splits.encode(table)
    assert "column 'sepal length (cm)', row 1" in str(caught.value)
    assert found in str(caught.value)
    assert "a finite number" in str(caught.value)


def test_a_small_network_learns_digits(build):
    """The defaults of the data set are such that a plain network gets past 0.97."""
    splits = build("digits")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = torch.nn.Sequential(
            torch.nn.Flatten(), torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10)
        )
        optimizer = torch.optim.Adam(model.parameters(), 3e-3)
        for _ in range(25):
            for rows in torch.randperm(len(splits.train)).split(64):
                batch = splits.train.gather(rows)
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(model(*batch.inputs), batch.target).backward()
                optimizer.step()
    right = model(splits.test.inputs[0]).argmax(1) == splits.test.target
    assert right.float().mean() >= 0.96


@pytest.mark.parametrize("normalize", ["standard", "minmax", "none"])
def test_what_was_scaled_can_be_read_back(build, normalize):
    splits = build("digits", normalize=normalize, limit=50)
    pixels = splits.invert(splits.train.inputs[0])
    assert float(pixels.min()) >= -1e-6 and float(pixels.max()) <= 1 + 1e-6
    assert torch.allclose(pixels * 16, (pixels * 16).round(), atol=1e-4)
