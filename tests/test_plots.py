"""Pictures: files exist, say what they show, leave nothing open and change nobody's settings. Warnings are errors."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from refusals import refused
from scipy import sparse

import svmcore
from svmcore.plots import canvas
from svmcore.plots import paths as plots

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
from matplotlib import pyplot as plt  # noqa: E402

pytestmark = pytest.mark.once

VIEWS = ("alphas", "sets", "objective", "error")


@pytest.fixture(autouse=True)
def nothing_stays_open():
    settings = dict(matplotlib.rcParams)
    yield
    plt.close("all")
    assert dict(matplotlib.rcParams) == settings


@pytest.fixture(scope="module")
def path():
    X, y = svmcore.load_data("demo:two-spirals")
    return svmcore.svm_path(X, y, gamma=0.5, lambda_min=0.01)


@pytest.fixture(scope="module")
def monk():
    X, y = svmcore.load_data("demo:monk1")
    return svmcore.svm_path(X, np.where(y > 0, "good", "bad"), gamma=0.25)


@pytest.mark.parametrize("kind", ["png", *(pytest.param(kind, marks=pytest.mark.ci) for kind in ("pdf", "svg"))])
def test_overview_is_a_file_and_no_open_figure(path, monk, tmp_path, kind):
    before = plt.get_fignums()
    for name, each in (("path", path), ("monk", monk)) if kind == "png" else (("path", path),):
        file = tmp_path / f"{name}.{kind}"
        plots.save_overview(each, str(file), format="png", title=name)
        assert 10_000 < file.stat().st_size < 1_000_000
        assert file.read_bytes()[:5] in (b"\x89PNG\r", b"%PDF-", b"<?xml")
    assert plt.get_fignums() == before


def test_every_view_has_title_and_labels(path):
    for what in (*VIEWS, "boundary"):
        ax = path.plot(what)
        assert ax.get_title(loc="left")
        assert ax.get_xlabel()
        assert ax.get_ylabel()
        if what != "boundary":
            assert ax.get_xscale() == "log"
            assert ax.get_xlabel().split()[0] == "C"
            assert ax.get_xlim()[0] == pytest.approx(path.Cs[0])
        ax.figure.canvas.draw()


def test_overview_names_its_axes(path, monk):
    assert set(path.plot("overview", title="Spirals")) == {*VIEWS, "boundary"}
    axes = monk.plot("overview")
    assert set(axes) == set(VIEWS)
    assert [text.get_text() for text in axes["alphas"].get_legend().get_texts()] == ["class bad", "class good"]


def test_given_axes_are_used(path):
    figure, ax = plt.subplots()
    assert path.plot("sets", ax=ax) is ax
    assert plt.get_fignums() == [figure.number]


def test_sets_show_the_counts(path):
    counts = path.support_counts()
    lines = {line.get_label(): line for line in path.plot("sets").get_lines()}
    for name, label in (("E", "on the margin"), ("L", "within"), ("R", "beyond")):
        np.testing.assert_array_equal(lines[label].get_ydata(), counts[name])


def test_alphas_are_those_of_the_path(monk):
    ax = monk.plot("alphas", max_lines=10_000)
    curves = [np.asarray(line) for collection in ax.collections for line in collection.get_segments()]
    Cs = curves[0][:, 0]
    alpha = monk.alpha(Cs) / Cs[:, None]
    for curve in curves:
        np.testing.assert_array_equal(curve[:, 0], Cs)
        assert np.abs(alpha - curve[:, 1:]).max(axis=0).min() < 1e-12


def test_error_shows_the_best_C_of_the_data_to_choose_by(path):
    X, y = svmcore.load_data("demo:two-spirals")
    X = X + np.random.default_rng(0).normal(0, 0.6, X.shape)
    ax = path.plot("error", test=(X, y))
    assert [line.get_label() for line in ax.get_lines()][:2] == ["training", "held out"]
    curve = path.error_curve(X, y)
    assert ax.get_title(loc="right").startswith(f"least {100 * curve.minimum:.3g} % at C = ")
    assert ax.get_title(loc="right").endswith(", held out")
    assert ax.get_lines()[-1].get_ydata() == pytest.approx([100 * curve.minimum])


def drawn_inside(ax):
    """Every point of every line of a picture that is not cut off lies inside of it, and runs from left to right."""
    low, high = ax.get_xlim()
    for line in ax.get_lines():
        x = np.asarray(line.get_xdata())
        if x.size > 2:
            assert (np.diff(x) >= 0).all()
            assert x[0] >= low * (1 - 1e-12)
        elif line.get_marker() == "o":
            assert low <= x[0] <= high
            assert ax.get_ylim()[0] <= line.get_ydata()[0] <= ax.get_ylim()[1]


@pytest.mark.parametrize("where", ["after the last event", "before the first"])
def test_the_best_C_is_inside_its_picture(where):
    rng = np.random.default_rng(2)
    X = rng.normal(size=(40, 2))
    y = np.where(X[:, 0] > 0.8, 1, 0)
    path = svmcore.svm_path(X, y, gamma=0.5)
    C = 0.5 * path.C_max if where == "after the last event" else 0.1 * path.Cs[0]
    best = svmcore.StepCurve(np.array([C / 1.3, C * 1.3]), np.array([0.4, 0.1, 0.3]), path.C_min, path.C_max)
    assert best.best_C == pytest.approx(C)
    axes = path.plot("overview", cv=best)
    for name in VIEWS:
        assert axes[name].get_xlim()[0] <= C <= axes[name].get_xlim()[1]
    axes["error"].figure.canvas.draw()
    drawn_inside(axes["error"])
    assert "cross-validated" in axes["error"].get_title(loc="right")


def test_the_training_error_recommends_no_C(path):
    ax = path.plot("error")
    assert ax.get_title(loc="right") == f"least training error {100 * path.error_curve().minimum:.3g} %"
    assert [line.get_label() for line in ax.get_lines()] == ["training"]
    drawn_inside(ax)
    assert path.plot("overview")["boundary"].get_title(loc="left") == "Decision boundary at C = 1"
    low, high = float(path.Cs[0]), float(path.Cs[-1])
    assert (
        path.plot("boundary").get_title(loc="left") == f"Decision boundary at C = {canvas.short(np.clip(1, low, high))}"
    )


def test_the_boundary_has_a_legend_and_the_names_of_its_features(path):
    ax = path.plot("boundary")
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["class -1", "class 1"]
    X, y = svmcore.load_data("demo:two-spirals")
    named = svmcore.svm_path(X, y, gamma=0.5, lambda_min=0.4, feature_names=["east", "north"])
    ax = named.plot("boundary", C=2.0)
    assert ax.get_xlabel().startswith("east ")
    assert ax.get_ylabel() == "north"


def test_options_that_are_not_there_are_named_with_the_public_call(path):
    refused(r"path.plot\(\"boundary\"\) has no option 'c'; its options are C, title", path.plot, "boundary", c=3)
    refused(r"path.plot\(\"sets\"\) has no option 'C'; it has none", path.plot, "sets", C=3)
    X, _ = svmcore.load_data("demo:two-spirals")
    refused(r"test must be a pair of data and labels, as in path.plot", path.plot, "error", test=X)


def test_error_on_a_grid_where_exact_is_too_much(path, monkeypatch):
    exact = plots.error_curves(path).training
    assert plots.is_exact(path)
    monkeypatch.setattr(plots, "_EXACT_WORK", 0)
    assert not plots.is_exact(path)
    curve = plots.error_curves(path).training
    Cs = plots._values(path, plots._limits(path))
    np.testing.assert_allclose(curve(Cs[::7]), exact(Cs[::7]), atol=1.5 / 194)


def test_boundary_is_refused_where_there_is_none(monk, path):
    refused("two features in a dense X only", monk.plot, "boundary")
    X, y = svmcore.load_data("demo:two-spirals")
    thin = svmcore.svm_path(sparse.csr_matrix(X), y, gamma=0.5, lambda_min=0.1)
    assert "boundary" not in thin.plot("overview")
    assert path.plot("boundary", C=5.0).get_title(loc="left") == "Decision boundary at C = 5"


def test_names_that_are_not_known(path):
    refused("what='alpha' is not known; choose one of 'alphas', 'sets'", path.plot, "alpha")
    refused("several pictures; leave ax out", path.plot, "overview", ax=plt.subplots()[1])
    refused("no picture file", canvas.check_file, "picture.csv")


@pytest.mark.parametrize(
    "options",
    [
        {"lambda_max": 0.5, "lambda_min": 0.5},
        pytest.param({"max_events": 0}, marks=pytest.mark.ci),
        pytest.param({"max_events": 1}, marks=pytest.mark.ci),
        pytest.param({"lambda_min": 0.9, "kernel": "linear"}, marks=pytest.mark.ci),
        {"kernel": "linear", "sample_weight": [1.0, 2.0, 0.0, 1.0]},
    ],
)
@pytest.mark.filterwarnings("ignore::svmcore.ConvergenceWarning")
def test_paths_with_little_to_show(tmp_path, options):
    path = svmcore.svm_path([[0.0, 1.0], [1.0, 1.0], [4.0, 1.0], [5.0, 1.0]], [0, 0, 1, 1], **options)
    plots.save_overview(path, str(tmp_path / "x.png"), format="png")
    assert (tmp_path / "x.png").stat().st_size > 10_000


def test_without_matplotlib_the_extra_is_named(path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(svmcore.MissingExtraError, match=r'pip install "svmcore\[plot\]"'):
        path.plot()


# ---- one machine -----------------------------------------------------------------------------------------------------


def scattered(ax) -> list:
    return [dots for dots in ax.collections if isinstance(dots, matplotlib.collections.PathCollection)]


def drawn(ax) -> np.ndarray:
    """The points of a picture, sorted by their height."""
    found = np.concatenate([np.asarray(dots.get_offsets()) for dots in scattered(ax)])
    return found[np.argsort(found[:, 1], kind="stable")]


def ringed(ax) -> int:
    return sum(
        int((np.broadcast_to(dots.get_linewidths(), len(dots.get_offsets())) > 0).sum()) for dots in scattered(ax)
    )


def test_a_machine_of_two_features_shows_boundary_margins_and_support_vectors(tmp_path):
    X, y = svmcore.load_data("demo:two-spirals")
    labels = np.where(y > 0, "in", "out")
    machine = svmcore.train_svc(X * [1.0, 100.0], labels, 5.0, gamma=8.0, standardize=True)
    ax = machine.plot()
    np.testing.assert_allclose(drawn(ax)[:, 1], np.sort(100.0 * X[:, 1]), atol=1e-9)  # in raw units
    assert ringed(ax) == len(machine.support)
    assert ax.get_title(loc="left") == "rbf, gamma = 8, C = 5"
    assert {text.get_text() for text in ax.get_legend().get_texts()} == {"class in", "class out"}
    assert "dashed: the margin" in ax.get_xlabel()
    levels = {float(level) for lines in ax.collections if hasattr(lines, "levels") for level in lines.levels}
    assert {-1.0, 0.0, 1.0} <= levels
    machine.save(tmp_path / "m.npz")
    again = svmcore.load(tmp_path / "m.npz").plot()
    np.testing.assert_allclose(drawn(again)[:, 1], np.sort(100.0 * X[machine.support, 1]), atol=1e-9)
    mine = plt.subplots()[1]
    assert machine.plot(X[:7] * [1.0, 100.0], labels[:7], ax=mine) is mine
    assert len(drawn(mine)) == 7
    assert ringed(mine) == np.sum(machine.support < 7) > 0
    mine = plt.subplots()[1]
    machine.plot(X[:7] * [1.0, 100.0] + 1e-3, ax=mine)
    assert ringed(mine) == 0


def test_a_function_of_one_feature_and_its_tube():
    rng = np.random.default_rng(0)
    x = rng.uniform(0.0, 6.0, (40, 1))
    target = np.sin(x[:, 0]) + 0.2 * rng.normal(size=40)
    machine = svmcore.train_svr(x, target, 10.0, 0.2, gamma=0.5, feature_names=["hours"])
    ax = machine.plot()
    at, f = ax.lines[0].get_data()
    np.testing.assert_allclose(f, machine.decision_function(np.asarray(at)[:, None]))
    np.testing.assert_allclose(drawn(ax)[:, 1], np.sort(target))
    assert ax.get_xlabel().startswith("hours   (ringed: support vectors; green: the tube")
    ax = svmcore.train_svc(x, target > 0, gamma=0.5).plot()
    assert len(drawn(ax)) == 40
    assert "margin" in ax.get_xlabel()


def test_one_class_and_sparse_data():
    X = np.random.default_rng(0).normal(size=(50, 2))
    ax = svmcore.train_one_class(X, nu=0.2, gamma=0.5).plot()
    assert "margin" not in ax.get_xlabel()
    assert len(drawn(ax)) == 50
    ax = svmcore.train_svc(sparse.csr_matrix(X), X[:, 0] > 0, kernel="linear").plot()
    assert len(drawn(ax)) == 50


def test_what_cannot_be_drawn_of_a_machine_is_said():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 3)), np.tile([-1, 1], 15)
    refused("classification can be drawn over one or two features; this machine has 3", svmcore.train_svc(X, y).plot)
    refused("regression can be drawn over one feature; this machine has 2", svmcore.train_svr(X[:, :2], y).plot)
    refused("precomputed", svmcore.train_svc(X @ X.T, y, kernel="precomputed").plot)
    machine = svmcore.train_svc(X[:, :2], y)
    refused("give X as well", machine.plot, y=y)
    refused("29 labels for 30 points", machine.plot, X[:, :2], y[:29])
    refused("3 features a row", machine.plot, X, y)
