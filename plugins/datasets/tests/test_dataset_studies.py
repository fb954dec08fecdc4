"""The data sets that stand for a point make it: in statistics, in geometry and in pictures."""

from __future__ import annotations

import math

import numpy
import pytest
import torch
from pegboard import DataSpec, Facts, Series
from pegboard_datasets import Input, chances, curves, scenes
from pegboard_datasets.labelling import spaces
from pegboard_gnn import Nodes


def stream(seed=0):
    return torch.Generator().manual_seed(seed)


def everyone(splits):
    """Inputs and targets of a data set that has one split, in double precision."""
    batch = splits.train.gather(torch.arange(len(splits.train)))
    return batch.inputs[0].double().numpy(), batch.target.double().numpy()


def pairs(splits):
    x, y = everyone(splits)
    return x[:, 0], y[:, 0]


def residual(x, y, degree):
    return y - numpy.polyval(numpy.polyfit(x, y, degree), x)


def curved(x, y):
    """The chance of a quadratic term as large as the one found, were the truth a line (F test)."""
    from scipy.stats import f

    if len(set(x)) < 3:
        return 1.0  # nothing speaks for a curve
    before, after = (float((residual(x, y, degree) ** 2).sum()) for degree in (1, 2))
    return f.sf((before - after) / (after / (len(x) - 3)), 1, len(x) - 3)


def outlying(x, y):
    """The chance of the largest residual when its sample is left out, among all samples (Bonferroni)."""
    from scipy.stats import t

    found = []
    for i in range(len(x)):
        others = numpy.arange(len(x)) != i
        if numpy.ptp(x[others]) == 0:
            return 0.0  # one sample alone decides the slope
        slope, start = numpy.polyfit(x[others], y[others], 1)
        rest = y[others] - slope * x[others] - start
        away = x[i] - x[others].mean()
        spread = rest.std(ddof=0) * math.sqrt(len(rest) / (len(rest) - 2))
        spread *= math.sqrt(1 + 1 / len(rest) + away**2 / ((x[others] - x[others].mean()) ** 2).sum())
        found.append(2 * t.sf(abs(y[i] - slope * x[i] - start) / spread, len(rest) - 2))
    return min(found) * len(x)


# Statistics.
@pytest.mark.catalogue("S3-001")
def test_anscombes_sets_share_their_statistics_and_not_their_residuals(build):
    sets = [pairs(build("quartet", number=number)) for number in (1, 2, 3, 4)]
    for x, y in sets:
        assert len(x) == 11
        assert (x.mean(), x.var(ddof=1)) == pytest.approx((9.0, 11.0), abs=1e-6)
        assert (y.mean(), y.var(ddof=1)) == pytest.approx((7.5, 4.125), abs=0.005)
        assert numpy.corrcoef(x, y)[0, 1] == pytest.approx(0.8164, abs=0.0003)
        assert numpy.polyfit(x, y, 1) == pytest.approx([0.5, 3.0], abs=0.003)
    largest = [float(abs(residual(x, y, 1)).max()) for x, y in sets]
    assert largest == pytest.approx([1.921, 1.901, 3.241, 1.839], abs=0.001)
    assert (residual(*sets[1], 2) ** 2).mean() == pytest.approx(2.0e-6, rel=0.05)
    assert (residual(*sets[1], 1) ** 2).mean() == pytest.approx(1.252, abs=0.001)
    assert (residual(*sets[0], 2) ** 2).mean() > 1


@pytest.mark.catalogue("S3-002")
def test_clouds_share_their_statistics_to_rounding_and_show_no_structure():
    found = {"anscombe": 0, "cloud": 0}
    for seed in range(3):
        for kind in found:
            for number in (1, 2, 3, 4):
                x, y = (t[:, 0].numpy() for t in curves.quartet(11, kind, number, generator=stream(seed)))
                if kind == "cloud":
                    mean, deviation, r = curves.QUARTET
                    assert [x.mean(), y.mean()] == pytest.approx(mean, abs=1e-12)
                    assert [x.std(ddof=1), y.std(ddof=1)] == pytest.approx(deviation, abs=1e-12)
                    assert abs(numpy.corrcoef(x, y)[0, 1] - r) < 1e-12
                found[kind] += min(curved(x, y), outlying(x, y)) < 1e-4
    assert found == {"anscombe": 9, "cloud": 0}  # a curve, an outlier and a lone sample, for each seed


SHAPES = ("circle", "star", "cross", "stripes", "parabola", "dino")


@pytest.mark.catalogue("S3-003")
@pytest.mark.parametrize("kind", SHAPES)
def test_a_shape_has_the_statistics_of_the_dozen(build, kind):
    x, y = pairs(build("quartet", kind=kind))
    assert len(x) == 142
    stats = [x.mean(), y.mean(), x.std(ddof=1), y.std(ddof=1), numpy.corrcoef(x, y)[0, 1]]
    assert [round(float(s), 2) for s in stats] == [54.26, 47.83, 16.76, 26.93, -0.06]


@pytest.mark.catalogue("S3-030")
def test_more_data_refutes_what_looked_like_a_line(build):
    fields = {"degree": 2, "coefficients": (0.0, 0.0, 1.0), "noise": 0.03, "samples": 50, "val": 0, "test": 0}
    for seed in range(5):
        x, y = pairs(build("polynomial_teacher", seed=seed, **fields))
        start = x < -0.6  # a fifth of the range
        assert 1 - residual(x[start], y[start], 1).var() / y[start].var() > 0.95
        assert curved(x[start], y[start]) > 0.001
        assert 1 - residual(x, y, 1).var() / y.var() < 0.7
        assert curved(x, y) < 0.001


# Geometry.
def geodesics(x):
    from scipy.sparse.csgraph import shortest_path
    from sklearn.neighbors import kneighbors_graph

    graph = kneighbors_graph(x, 7, mode="distance")
    return shortest_path(graph.maximum(graph.T), directed=False)


def apart(x):
    return numpy.linalg.norm(x[:, None] - x[None], axis=-1)


@pytest.mark.catalogue("S3-013")
def test_a_sheet_is_bent_but_not_stretched(build):
    sheets = {
        kind: everyone(build("swiss_roll", embedding=kind, samples=700, seed=0, val=0, test=0))[0]
        for kind in ("flat", "cylinder", "roll", "fold")
    }
    along, straight = geodesics(sheets["flat"]), apart(sheets["flat"])
    for kind, tolerance in (("cylinder", 0.02), ("roll", 0.02), ("fold", 0.06)):  # a crease is cut short
        x = sheets[kind]
        assert numpy.linalg.norm(geodesics(x) - along) < tolerance * numpy.linalg.norm(along)
        assert numpy.linalg.norm(apart(x) - straight) > 0.1 * numpy.linalg.norm(straight)


@pytest.mark.catalogue("S3-016")
def test_a_roll_is_unrolled_by_isomap_and_not_by_principal_components(build):
    from sklearn.manifold import Isomap

    x, y = everyone(build("swiss_roll", samples=700, seed=0, val=0, test=0))
    scales = numpy.linalg.svd(x - x.mean(0), compute_uv=False) ** 2
    assert scales[2] > 0.1 * scales.sum()
    found = Isomap(n_neighbors=7, n_components=2).fit_transform(x)
    turned = numpy.hypot(x[:, 0], x[:, 2])  # (t cos t, h, t sin t)
    for place, true in ((0, turned), (0, y[:, 0]), (1, x[:, 1]), (1, y[:, 1])):
        assert abs(numpy.corrcoef(found[:, place], true)[0, 1]) > 0.95


def test_the_roll_is_that_of_scikit_learn():
    x, y = curves.swiss_roll(200, generator=stream())
    t = torch.hypot(x[:, 0], x[:, 2])
    assert t.min() >= 1.5 * math.pi
    assert t.max() <= 4.5 * math.pi
    torch.testing.assert_close(x[:, [0, 2]], t[:, None] * torch.stack([t.cos(), t.sin()], 1))
    # The length of the spiral by many short chords.
    for i in range(5):
        fine = torch.linspace(1.5 * math.pi, float(t[i]), 20001, dtype=torch.float64)
        path = fine[:, None] * torch.stack([fine.cos(), fine.sin()], 1)
        assert float(path.diff(dim=0).norm(dim=1).sum()) == pytest.approx(float(y[i, 0]), rel=1e-6)


# Measurements.
@pytest.mark.catalogue("S3-005")
def test_few_frequencies_leave_signals_that_nobody_measured(build):
    frequencies = curves.sparse_fourier(1, generator=stream(0)).frequencies
    rows = curves.fourier_rows(frequencies, 64)
    # Two rows for a frequency, but one for 0 and 32, and none for one whose negative is there.
    kept = {min(k, 64 - k) for k in frequencies.tolist()}
    nobody = 64 - sum(1 if k in (0, 32) else 2 for k in kept)
    assert nobody == 42
    _, scales, axes = torch.linalg.svd(rows)
    assert int((scales > 1e-10).sum()) == 64 - nobody
    signal = torch.randn(64, generator=stream(1), dtype=torch.float64)
    measured = rows @ signal
    unseen = axes[64 - nobody :].T @ torch.randn(nobody, generator=stream(2), dtype=torch.float64)
    assert float((rows @ (signal + unseen) - measured).norm()) < 1e-12
    least = torch.linalg.pinv(rows) @ measured
    torch.testing.assert_close(rows @ least, measured, rtol=0, atol=1e-12)
    # Any other explanation is longer, so the least one is alone: what is left of it is orthogonal to it.
    assert abs(float(least @ unseen)) < 1e-12
    for strength in (1e-6, 1e-8):  # a quadratic prior leads to it
        inner = rows @ rows.T + strength * torch.eye(len(rows))
        near = rows.T @ torch.linalg.solve(inner, measured)
        assert float((near - least).norm() / least.norm()) < 10 * strength


def test_measurements_are_those_of_the_fast_transform(build):
    splits = build("sparse_fourier", samples=20, val=0, test=0)
    x, y = everyone(splits)
    chosen = numpy.fft.fft(y, norm="ortho")[:, splits.notes["frequencies"]]
    numpy.testing.assert_allclose(x, numpy.concatenate([chosen.real, chosen.imag], 1), atol=1e-5)


# Pictures.
@pytest.mark.catalogue("S3-012")
def test_shapes_that_cover_each_other_are_no_sum_of_them(build):
    splits = build("squares_and_line", samples=40, val=0, test=0)
    layers, pictures = splits.train.inputs[0], splits.train.target
    assert torch.equal(scenes.painted(layers).flatten(1), pictures)
    for layer, picture in zip(layers.flatten(2).double(), pictures.double(), strict=True):
        weight = torch.linalg.lstsq(layer.T, picture[:, None]).solution
        rest = layer.T @ weight - picture[:, None]
        assert float(rest.norm() / picture.norm()) > 0.05


@pytest.mark.catalogue("S3-014")
def test_a_ball_without_shadows_has_three_pictures_and_with_them_about_nine(build):
    for seed in range(3):
        plain = build("relighting", shadows=False, seed=seed, val=0, test=0)
        assert plain.train.target.shape[1] == 4
        matrix = plain.train.inputs[0].flatten(1).double()
        assert int(torch.linalg.matrix_rank(matrix, rtol=1e-5)) == 3
        shaded = build("relighting", seed=seed, val=0, test=0).train.inputs[0].flatten(1).double()
        energy = torch.linalg.svdvals(shaded) ** 2
        assert float(energy[:9].sum() / energy.sum()) == pytest.approx(0.995, abs=0.002)


def test_a_pixel_is_the_cosine_between_surface_and_light_over_the_distance_squared():
    x, y = scenes.relighting(5, 9, generator=stream())
    place = y[:, :3].double()
    for row, column in ((4, 4), (2, 5), (6, 1)):
        normal = torch.tensor([(column + 0.5) * 2 / 9 - 1, 1 - (row + 0.5) * 2 / 9], dtype=torch.float64)
        normal = torch.cat([normal, (1 - normal.square().sum()).sqrt()[None]])
        light = (place @ normal / place.norm(dim=1) ** 3 * y[:, 3]).clamp(min=0)
        torch.testing.assert_close(x[:, 0, row, column], light.float(), rtol=1e-5, atol=1e-6)


def inpainted(image, hole):
    """The hole filled with the patch whose frame is nearest to the frame around the hole."""
    size = image.shape[0]
    start, frame = (size - hole) // 2 - 2, hole + 4
    inside = slice(2, 2 + hole)
    edge = numpy.ones((frame, frame), bool)
    edge[inside, inside] = False
    missing = numpy.zeros(image.shape, bool)
    missing[start + 2 : start + 2 + hole, start + 2 : start + 2 + hole] = True
    wanted = image[start : start + frame, start : start + frame][edge]
    best = (math.inf, None)
    for i in range(size - frame + 1):
        for j in range(size - frame + 1):
            at = (slice(i, i + frame), slice(j, j + frame))
            if not missing[at].any():
                distance = ((image[at][edge] - wanted) ** 2).sum()
                best = min(best, (distance, (i, j)))
    i, j = best[1]
    return image[i : i + frame, j : j + frame][inside, inside]


@pytest.mark.catalogue("S3-088")
@pytest.mark.parametrize("pattern", ["periodic", "noise"])
def test_a_hole_is_filled_by_what_repeats(build, pattern):
    splits = build("texture", pattern=pattern, size=24, samples=10, seed=0, val=0, test=0)
    images, targets = splits.train.inputs[0][:, 0].numpy(), splits.train.target.numpy()
    filled = numpy.stack([inpainted(image, 4).flatten() for image in images])
    error = ((filled - targets) ** 2).sum() / (targets**2).sum()
    assert error < 0.01 if pattern == "periodic" else error > 0.5


def test_objects_of_the_test_are_where_none_was_trained_on(build):
    splits = build("objects")
    for source, right in ((splits.train, False), (splits.val, False), (splits.test, True)):
        x = source.inputs[0][:, 0]
        assert torch.equal(x.sum((1, 2)), torch.full((len(x),), 9.0))
        assert bool(x[:, :, 14:].any()) == right
        assert bool(x[:, :, :14].any()) != right


# Payments and groups.
@pytest.mark.catalogue("T026")
def test_fraud_is_far_from_every_habit(build):
    from sklearn.cluster import KMeans
    from sklearn.metrics import roc_auc_score

    for seed in range(5):
        splits = build("fraud", seed=seed)
        train, test = splits.train.inputs[0].numpy(), splits.test.inputs[0].numpy()
        assert train.shape[1] == 4
        found = KMeans(3, n_init=5, random_state=0).fit(train)
        assert roc_auc_score(splits.test.target.numpy(), found.transform(test).min(1)) >= 0.95
    raw = build("fraud", normalize="none").train.inputs[0]
    assert set(raw[:, 3].tolist()) == {0.0, 1.0}
    assert set(raw[:, 2].tolist()) <= set(range(7))
    assert 0 <= raw[:, 1].min() <= raw[:, 1].max() < 24


@pytest.mark.catalogue("S3-006")
def test_watching_where_something_was_found_makes_a_small_lead_a_large_one(build):
    shares = chances.watched(0.49, 10)
    assert shares[0] == 0.49
    assert shares == sorted(shares, reverse=True)
    assert shares[-1] <= 0.1
    splits = build("biased", mechanism="feedback", share=0.49, val=0, test=0)
    assert splits.notes["shares"] == shares
    group = splits.train.inputs[0][:, 2]
    assert float(group.mean()) == pytest.approx(sum(shares) / 10, abs=0.001)


@pytest.mark.parametrize(
    ("name", "fields", "field"),
    [
        ("quartet", {"samples": 12}, "samples"),
        ("quartet", {"kind": "star", "number": 2}, "number"),
        ("sparse_fourier", {"length": 8, "measured": 9}, "measured"),
        ("texture", {"size": 8, "hole": 8}, "hole"),
    ],
)
def test_what_cannot_be_made_is_a_problem(parts, name, fields, field):
    found = list(parts[name].check(parts[name].config(**fields), Facts()))
    assert [problem.field for problem in found] == [field]


MADE = ("students", "plants", "admissions", "overlap", "fraud", "biased", "objects", "cosine", "swiss_roll")
MADE += ("sparse_fourier", "squares_and_line", "texture", "relighting", "solids")


@pytest.mark.parametrize("name", MADE)
def test_the_runs_seed_makes_other_samples_and_own_seed_keeps_them(build, name):
    prints = {
        (run, own): build(name, run_seed=run, seed=own, samples=30).notes["fingerprint"]
        for run, own in ((0, None), (1, None), (1, 0))
    }
    assert prints[0, None] != prints[1, None]
    assert prints[0, None] == prints[1, 0]


# What is drawn.
def drawn(parts, build, name, **fields):
    from matplotlib.figure import Figure

    figure = Figure()
    parts[name].plot(build(name, **fields), figure)
    figure.draw_without_rendering()
    return figure.axes


PLOTS = ("fraud", "biased", "objects", "cosine", "quartet", "swiss_roll", "sparse_fourier", "texture")
PLOTS += ("squares_and_line", "solids", "point_shapes")


def test_data_sets_with_a_picture_of_their_own_draw_it(parts, build):
    assert {name for name, part in parts.items() if part.plot} == set(PLOTS)
    sizes = {
        name: len(drawn(parts, build, name, samples=None if name == "quartet" else 30)) for name in PLOTS
    }
    assert sizes == {
        "fraud": 1, "biased": 2, "objects": 10, "cosine": 1, "quartet": 1, "swiss_roll": 1,
        "sparse_fourier": 3, "texture": 10, "squares_and_line": 5, "solids": 5,
        "point_shapes": 6,
    }  # fmt: skip
    for share in (0.0, 0.2):
        titles = [axes.get_title() for axes in drawn(parts, build, "objects", samples=30, labelled=share)]
        assert "train: unlabelled" in titles
        (axes,) = drawn(parts, build, "fraud", labelled=share)
        named = {text.get_text() for text in axes.get_legend().get_texts()}
        assert named == {"unlabelled"} | ({"usual", "fraud"} if share else set())


def test_pictures_are_in_the_units_of_the_samples(parts, build):
    plain = drawn(parts, build, "cosine", seed=0)[0]
    scaled = drawn(parts, build, "cosine", seed=0, normalize="standard", normalize_target=True)[0]
    points = [axes.collections[0].get_offsets().data for axes in (plain, scaled)]
    numpy.testing.assert_allclose(points[0], points[1], atol=1e-5)
    pictures = [
        drawn(parts, build, "texture", seed=0, samples=30, normalize=how) for how in ("none", "minmax")
    ]
    shown = [axes[5].images[0].get_array() for axes in pictures]
    numpy.testing.assert_allclose(shown[0], shown[1], atol=1e-4)


# What the samples are functions on.
@pytest.mark.catalogue("S22")
def test_the_notes_say_which_space_samples_are_functions_on(parts, build):
    kinds = set()
    for name in parts.keys() - {"hub"}:
        splits = build(name)
        spaces = splits.notes["underlying_space"].values()
        for x, space in zip(splits.train.inputs, spaces, strict=True):
            kinds.add(space["space"])
            shape = (space["d"], *space["shape"]) if "grid" in space["space"] else tuple(space["shape"])
            steps = x.dim() - 1 > len(shape)  # of a line the numbers of a step come last
            assert x.shape[1:] == ((*shape, space["d"]) if steps else shape)
    assert kinds == {"set", "line", "grid2d", "grid3d"}


@pytest.mark.catalogue("S22")
def test_texts_and_series_are_functions_on_a_line_and_nodes_on_a_graph(hub, tmp_path):
    (tmp_path / "t.csv").write_text("text,kind\n" + "a b c,x\nd e,y\n" * 10)
    splits = hub(path=str(tmp_path / "t.csv"), inputs={"text": Input(kind="text")}, target="kind")
    assert splits.notes["underlying_space"] == {"text": {"space": "line", "shape": [3], "d": 1}}
    nodes = {"space": "graph", "shape": [12], "d": 3}
    assert spaces(DataSpec((Nodes(3, 12),), names=("nodes",))) == {"nodes": nodes}
    assert spaces(DataSpec((Series(7, 2),))) == {"input 0": {"space": "line", "shape": [7], "d": 2}}
