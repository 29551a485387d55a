"""Permutation tests and many cross-validations: scikit-learn's scores and p-values, run for run, and more."""

from __future__ import annotations

import functools
import itertools
import pickle
import signal

import numpy as np
import pytest
from refusals import refused
from scipy import sparse, stats

import svmcore
from svmcore._types import Status
from svmcore.trials import permutations

pytestmark = pytest.mark.compiled

svm = pytest.importorskip("sklearn.svm")
selection = pytest.importorskip("sklearn.model_selection")

N = 60


def data(seed, n=N, signal=1.0, d=4):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, (signal * X[:, 0] + rng.normal(size=n) > 0).astype(int)


X, Y = data(0)
T = X[:, 0] + np.random.default_rng(1).normal(size=N)
THREE = np.array(["a", "b", "c"])[np.digitize(X[:, 0] + np.random.default_rng(2).normal(size=N), [-0.6, 0.6])]
GROUPS = np.arange(N) // 6
EXACT = {"tol": 1e-5}  # with its kernel values in float32 LIBSVM gets no further


SETS = [
    data(seed, n, strength, d)
    for seed, (n, strength, d) in enumerate(
        [(50, 1, 3), (41, 0, 4), (60, 0.5, 2), (73, 0.3, 6), (48, 2, 2), (65, 1, 5), (80, 0.2, 3), (30, 1, 40)]
    )
] + [(X, THREE), (sparse.csr_array(np.abs(X) * (X > 0)), Y)]
MACHINES = [
    {},
    {"kernel": "linear"},
    {"gamma": 0.2, "C": 10.0},
    {"class_weight": "balanced"},
    {"kernel": "poly", "C": 3.0},
]


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.ci) for seed in (1, 2, 3, 4))])
@pytest.mark.parametrize("k", range(len(SETS)))
@pytest.mark.parametrize("machine", MACHINES, ids=str)
def test_scores_and_p_values_are_those_of_scikit_learn(machine, k, seed):
    """To the bit. With gamma="scale" kernel values differ from fold to fold."""
    points, labels = SETS[k]
    ours = svmcore.permutation_test(svm.SVC(**machine), points, labels, n_permutations=4, random_state=seed)
    theirs = selection.permutation_test_score(
        svm.SVC(**machine, **EXACT), points, labels, n_permutations=4, random_state=seed
    )
    assert ours.score == theirs[0]
    np.testing.assert_array_equal(ours.permutation_scores, theirs[1])
    assert ours.pvalue == theirs[2]


CASES = {
    "groups": (svm.SVC(gamma=0.3), Y, {"groups": GROUPS, "cv": selection.GroupKFold(3)}),
    "groups, stratified": (svm.SVC(gamma=0.3), Y, {"groups": GROUPS % 3}),
    "shuffled": (svm.SVC(gamma=0.3), Y, {"cv": selection.StratifiedKFold(4, shuffle=True, random_state=1)}),
    "drawn": (svm.SVC(gamma=0.3), Y, {"cv": selection.ShuffleSplit(6, random_state=1)}),
    "balanced": (svm.SVC(gamma=0.3, class_weight="balanced"), Y, {"scoring": "balanced_accuracy"}),
    "weights": (svm.SVC(gamma=0.3, class_weight={1: 3.0}), Y, {}),
    "auc": (svm.SVC(gamma=0.3), Y, {"scoring": "roc_auc"}),
    "three": (svm.SVC(gamma=0.3, C=3.0), THREE, {}),
    "three, balanced score": (svm.SVC(gamma=0.3, C=3.0), THREE, {"scoring": "balanced_accuracy"}),
    "three, balanced": (svm.SVC(C=3.0, class_weight="balanced"), THREE, {}),
    "scale, folds of groups": (svm.SVC(), Y, {"groups": GROUPS, "cv": selection.GroupKFold(3)}),
    "scale, rows that never train": (svm.SVC(), Y, {"cv": selection.ShuffleSplit(4, train_size=0.5, random_state=1)}),
    "scale, degree 2": (svm.SVC(kernel="poly", degree=2, coef0=0.5), Y, {"scoring": "roc_auc"}),
    "scale, numbers": (svm.SVR(), T, {}),
    "numbers": (svm.SVR(gamma=0.3), T, {}),
    "errors": (
        svm.SVR(kernel="poly", degree=2, coef0=1.0, gamma=0.3, epsilon=0.3),
        T,
        {"scoring": "neg_mean_squared_error"},
    ),
}


@pytest.mark.filterwarnings("ignore:The groups parameter is ignored:UserWarning")
@pytest.mark.parametrize("case", CASES)
def test_all_words_mean_what_they_mean_there(case):
    machine, y, words = CASES[case]
    ours = svmcore.permutation_test(machine.set_params(**EXACT), X, y, n_permutations=15, **words)
    theirs = selection.permutation_test_score(machine, X, y, n_permutations=15, **words)
    assert ours.score == pytest.approx(theirs[0], abs=5e-5)
    np.testing.assert_allclose(ours.permutation_scores, theirs[1], atol=5e-5)
    assert ours.pvalue == theirs[2]


def test_cross_val_many_is_cross_val_predict_of_every_column():
    columns = np.column_stack([Y, 1 - Y, np.random.default_rng(3).permutation(Y)])
    found = svmcore.cross_val_many(X, columns, C=[0.5, 5.0], gamma=0.3, tol=1e-9)
    assert found.scores.shape == found.violation.shape == found.gap.shape == (3, 2, 5)
    assert found.decisions.shape == (3, 2, N)
    assert found.converged
    assert found.violation.max() <= 1e-9
    assert np.abs(found.relative_gap).max() <= 1e-8
    for (k, column), (j, C) in itertools.product(enumerate(columns.T), enumerate([0.5, 5.0])):
        machine = svm.SVC(C=C, gamma=0.3, tol=1e-6)
        theirs = selection.cross_val_predict(machine, X, column, method="decision_function")
        np.testing.assert_allclose(found.decisions[k, j], theirs, atol=2e-5)
        np.testing.assert_array_equal(found.scores[k, j], selection.cross_val_score(machine, X, column))
    assert "3 labellings x 5 folds, mean accuracy" in repr(found)


OUT = {
    "small C": {"C": 0.05, "gamma": 0.3},
    "C": {"C": 1.0, "gamma": 0.3},
    "large C": {"C": 100.0, "gamma": 0.3},
    "linear": {"C": 3.0, "kernel": "linear"},
    "costs by class": {"gamma": 0.3, "class_weight": {0: 0.5, 1: 2.0}},
    "costs that look at folds": {"gamma": 0.3, "class_weight": "balanced"},
    "weights": {"gamma": 0.3, "sample_weight": np.random.default_rng(9).integers(0, 3, N) * 1.0},
    "targets": {"C": 2.0, "gamma": 0.3, "loss": "epsilon_insensitive", "epsilon": 0.2},
}


@pytest.mark.parametrize("cv", ["loo", selection.LeaveOneOut()], ids=["loo", "LeaveOneOut"])
@pytest.mark.parametrize("case", OUT)
def test_a_row_left_out_is_told_what_a_machine_of_the_others_says(case, cv):
    words = dict(OUT[case])
    labels = "loss" not in words
    columns = np.column_stack([Y, np.random.default_rng(3).permutation(Y)] if labels else [T, T[::-1]])
    found = svmcore.cross_val_many(X, columns, cv=cv, tol=1e-11, **words)
    assert found.converged
    assert found.violation.max() <= 1e-11
    assert np.abs(found.relative_gap).max() <= 1e-9
    weights, train = words.pop("sample_weight", None), svmcore.train_svc
    if not labels:
        train = functools.partial(svmcore.train_svr, epsilon=words.pop("epsilon"), loss=words.pop("loss"))
    for (k, column), out in itertools.product(enumerate(columns.T), range(0, N, 3)):
        rest = np.arange(N) != out
        share = None if weights is None else weights[rest]
        machine = train(X[rest], column[rest], tol=1e-11, sample_weight=share, **words)
        assert found.decisions[k, out] == pytest.approx(machine.decision_function(X[out : out + 1])[0], abs=1e-8)


def test_cross_val_many_agrees_with_the_path():
    path = svmcore.cv_path(X, Y, cv=4, gamma=0.3)
    for C in (0.7, 3.3):
        found = svmcore.cross_val_many(X, Y, cv=path.folds, C=C, gamma=0.3)
        np.testing.assert_allclose(1.0 - found.scores[0], path.fold_errors(C), atol=1e-12)


def test_frames():
    pd = pytest.importorskip("pandas")
    frame = svmcore.cross_val_many(X, np.column_stack([Y, 1 - Y]), C=[1.0, 2.0], kernel="linear").to_frame()
    assert isinstance(frame, pd.DataFrame)
    assert list(frame.columns) == ["column", "C", "fold", "score", "violation", "gap", "relative_gap"]
    assert len(frame) == 2 * 2 * 5
    test = svmcore.permutation_test(X, Y, n_permutations=5, kernel="linear")
    assert test.to_frame()["score"].tolist() == test.permutation_scores.tolist()
    test = svmcore.permutation_test(X, np.column_stack([Y, 1 - Y]), n_permutations=5, kernel="linear")
    assert test.to_frame().shape == (5, 2)


FORMS = {
    "a list of C": (X, Y, {"n_permutations": 400, "gamma": 0.3, "C": [0.5, 5.0], "score": "roc_auc"}),
    "stopped": (
        X,
        Y,
        {"n_permutations": 400, "gamma": 0.3, "stop": "besag-clifford", "exceed": 30, "score": "roc_auc"},
    ),
    "a kernel for every fold": (svm.SVC(), X, Y, {"n_permutations": 200, "scoring": "roc_auc"}),
}


@pytest.mark.parametrize("form", FORMS)
def test_threads_change_no_bit(form):
    *given, words = FORMS[form]
    one, two, three = (svmcore.permutation_test(*given, n_jobs=k, **words) for k in (1, 2, 3))
    for other in (two, three):
        np.testing.assert_array_equal(one.permutation_scores, other.permutation_scores)
        for name in ("score", "pvalue", "C", "violation", "relative_gap"):
            assert getattr(one, name) == getattr(other, name)


def test_it_unpacks_and_is_pickled():
    test = svmcore.permutation_test(X, Y, n_permutations=30, kernel="linear")
    score, scores, pvalue = test
    assert (score, pvalue) == (test.score, test.pvalue)
    assert pvalue == (1 + np.sum(scores >= score - permutations.TIE)) / 31
    assert (test.n_permutations, test.n_fits, test.status) == (30, 31 * 5, Status.CONVERGED)
    assert test.violation <= 1e-3
    assert repr(test).startswith("<PermutationTest: accuracy 0.")
    again = pickle.loads(pickle.dumps(test))
    assert (again.score, again.n_reached, again.seconds) == (test.score, test.n_reached, test.seconds)


def test_ties_count_though_they_round_differently():
    """Equal counts in other folds have means that differ in their last bit."""
    test = svmcore.permutation_test(X, Y, n_permutations=300, kernel="linear")
    scores = np.round(np.asarray(test.permutation_scores) * 1e9)
    assert test.n_reached == np.sum(scores >= np.round(test.score * 1e9))


def test_a_list_of_C_takes_the_best_of_each_labelling():
    Cs = [0.1, 1.0, 10.0]
    tuned = svmcore.permutation_test(X, Y, n_permutations=25, gamma=0.3, C=Cs)
    alone = [svmcore.permutation_test(X, Y, n_permutations=25, gamma=0.3, C=C) for C in Cs]
    np.testing.assert_array_equal(tuned.permutation_scores, np.max([one.permutation_scores for one in alone], axis=0))
    assert tuned.score == max(one.score for one in alone)
    assert Cs[int(np.argmax([one.score for one in alone]))] == tuned.C


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (Y, {}),
        (THREE, {"score": "balanced_accuracy", "class_weight": "balanced"}),
        (
            Y,
            {
                "class_weight": {1: 2.0},
                "sample_weight": np.arange(N) % 3 + 0.5,
                "cv": selection.ShuffleSplit(3, random_state=1),
            },
        ),
    ],
    ids=["two", "three", "weights"],
)
def test_every_C_at_once(labels, words):
    test = svmcore.permutation_test(X, labels, n_permutations=4, gamma=0.3, C="path", **words)
    source = np.random.RandomState(0)
    form = {"gamma": 0.3, "weight_score": False} | {"score": words.get("score", "accuracy")}
    form |= {name: words[name] for name in ("class_weight", "sample_weight") if name in words}
    for score, row in zip(
        [test.score, *test.permutation_scores], [np.arange(N), *(source.permutation(N) for _ in range(4))], strict=True
    ):
        path = svmcore.cv_path(X, labels[row], cv=words.get("cv", selection.StratifiedKFold(5)), **form)
        assert score == pytest.approx(1.0 - path.best_error, abs=1e-12)
    listed = svmcore.permutation_test(X, labels, n_permutations=4, gamma=0.3, C=[1.0, 10.0], **words)
    assert (np.asarray(test.permutation_scores) >= np.asarray(listed.permutation_scores) - 1e-12).all()
    assert test.score >= listed.score - 1e-12
    assert 0.0 < test.C <= 1000.0
    assert test.relative_gap < 1e-8
    three = svmcore.permutation_test(X, labels, n_permutations=4, gamma=0.3, C="path", n_jobs=3, **words)
    np.testing.assert_array_equal(test.permutation_scores, three.permutation_scores)


def test_columns_share_permutations_and_the_largest_counts_for_all():
    columns = np.column_stack([Y, np.random.default_rng(4).permutation(Y), X[:, 1] > 0])
    words = {"n_permutations": 40, "gamma": 0.3}
    each = svmcore.permutation_test(X, columns, **words)
    assert each.permutation_scores.shape == (40, 3)
    for k in range(3):
        alone = svmcore.permutation_test(X, columns[:, k], **words)
        np.testing.assert_array_equal(each.permutation_scores[:, k], alone.permutation_scores)
        assert each.pvalue[k] == alone.pvalue
    most = svmcore.permutation_test(X, columns, statistic="max", **words)
    np.testing.assert_array_equal(most.permutation_scores, each.permutation_scores.max(axis=1))
    reached = (most.permutation_scores[:, None] >= most.score - permutations.TIE).sum(axis=0)
    np.testing.assert_allclose(most.pvalue, (1 + reached) / 41)


def test_own_permutations():
    rng = np.random.RandomState(0)
    rows = np.array([rng.permutation(N) for _ in range(30)])
    own = svmcore.permutation_test(X, Y, permutations=rows, gamma=0.3)
    drawn = svmcore.permutation_test(X, Y, n_permutations=30, gamma=0.3, random_state=0)
    np.testing.assert_array_equal(own.permutation_scores, drawn.permutation_scores)
    generator = np.random.default_rng(3)
    other = svmcore.permutation_test(X, Y, n_permutations=30, gamma=0.3, random_state=generator)
    assert (other.permutation_scores != drawn.permutation_scores).any()


def test_pooled_scores_judge_all_rows_at_once():
    found = svmcore.cross_val_many(X, T, loss="epsilon_insensitive", gamma=0.3)
    pooled = svmcore.permutation_test(
        X, T, loss="epsilon_insensitive", gamma=0.3, score="correlation", pooled=True, n_permutations=20
    )
    assert pooled.score == pytest.approx(np.corrcoef(found.decisions[0], T)[0, 1], abs=1e-5)
    loo = svmcore.permutation_test(X, Y, cv="loo", gamma=0.3, n_permutations=5, score="roc_auc", pooled=True)
    values = svmcore.cross_val_many(X, Y, cv="loo", gamma=0.3, tol=1e-6).decisions[0]
    assert loo.score == pytest.approx(
        stats.mannwhitneyu(values[Y == 1], values[Y == 0]).statistic / (Y.sum() * (1 - Y).sum())
    )


@pytest.mark.parametrize("alternative", ["greater", "less", "two-sided"])
def test_alternatives(alternative):
    test = svmcore.permutation_test(X, Y, n_permutations=60, gamma=0.3, alternative=alternative)
    scores = np.round(np.asarray(test.permutation_scores), 9)
    above, below = (1 + np.sum(scores >= round(test.score, 9))) / 61, (1 + np.sum(scores <= round(test.score, 9))) / 61
    expected = {"greater": above, "less": below, "two-sided": min(1.0, 2 * min(above, below))}[alternative]
    assert test.pvalue == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(6))
def test_a_stopped_test_is_the_beginning_of_the_whole_one(seed):
    points, labels = data(seed, signal=0.1)
    words = {"n_permutations": 300, "gamma": 0.3, "random_state": seed}
    whole = svmcore.permutation_test(points, labels, **words)
    short = svmcore.permutation_test(points, labels, stop="besag-clifford", exceed=10, **words)
    count = short.n_permutations
    np.testing.assert_array_equal(short.permutation_scores, whole.permutation_scores[:count])
    hits = np.asarray(whole.permutation_scores) >= whole.score - permutations.TIE
    if hits.sum() >= 10:
        assert count == np.flatnonzero(np.cumsum(hits) == 10)[0] + 1
        assert short.pvalue == 10 / count
    else:
        assert count == 300
        assert short.pvalue == whole.pvalue
    assert (short.pvalue <= 0.05) == (whole.pvalue <= 0.05)


def test_stopping_waits_for_every_column():
    columns = np.column_stack([X[:, 0] > 0, np.random.default_rng(4).permutation(Y)])
    words = {"n_permutations": 100, "kernel": "linear", "stop": "besag-clifford", "exceed": 5}
    test = svmcore.permutation_test(X, columns, **words)
    alone = svmcore.permutation_test(X, columns[:, 1], **words)
    assert test.n_permutations == 100, "nothing is like the first column"
    assert test.pvalue.tolist() == [1 / 101, alone.pvalue]


def test_maps():
    words = {"kernel": "linear", "C": 0.5}
    test = svmcore.permutation_test(X, Y, n_permutations=30, maps=True, tol=1e-7, **words)
    machine = svmcore.train_svc(X, Y, **words, tol=1e-8)
    np.testing.assert_allclose(test.map, X[machine.support].T @ machine.dual_coef, atol=1e-4)
    rng, maps = np.random.RandomState(0), []
    for _ in range(30):
        other = svmcore.train_svc(X, Y[rng.permutation(N)], **words, tol=1e-8)
        maps.append(np.abs(X[other.support].T @ other.dual_coef))
    np.testing.assert_allclose(test.map_maxima, np.max(maps, axis=1), atol=1e-3)
    reached = (np.array(maps) >= np.abs(test.map)).sum(axis=0)
    np.testing.assert_allclose(test.map_pvalues, (1 + reached) / 31, atol=1.01 / 31)


def test_no_permutation_gives_the_score_alone():
    test = svmcore.permutation_test(X, Y, n_permutations=0, gamma=0.3)
    assert np.isnan(test.pvalue)
    assert len(test.permutation_scores) == 0
    assert test.score == svmcore.cross_val_many(X, Y, gamma=0.3).scores.mean()


def test_what_is_complete_is_kept():
    seen = []

    def callback(report):
        seen.append(report)
        return report.n_done >= 100

    words = {"n_permutations": 5000, "gamma": 0.3}
    test = svmcore.permutation_test(X, Y, callback=callback, **words)
    assert test.status is Status.CALLBACK
    assert 100 <= test.n_permutations == len(test.permutation_scores) < 1000
    whole = svmcore.permutation_test(X, Y, **(words | {"n_permutations": test.n_permutations}))
    np.testing.assert_array_equal(test.permutation_scores, whole.permutation_scores)
    assert test.pvalue == whole.pvalue
    assert seen[-1].n_permutations == 5000
    limited = svmcore.permutation_test(X, Y, time_limit=0.0, **words)
    assert limited.status is Status.TIME_LIMIT
    part = svmcore.cross_val_many(X, np.column_stack([Y] * 300), gamma=0.3, callback=lambda report: True)
    assert part.status is Status.CALLBACK
    assert 0 < len(part.scores) < 300


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_keeps_what_is_complete():
    def callback(report):
        if report.n_done >= 60:
            signal.raise_signal(signal.SIGINT)

    test = svmcore.permutation_test(X, Y, n_permutations=5000, gamma=0.3, callback=callback)
    assert test.status is Status.INTERRUPTED
    assert 60 <= test.n_permutations < 5000


def test_progress(capfd, monkeypatch):
    monkeypatch.setattr(permutations, "EVERY", 0.0)
    svmcore.permutation_test(X, Y, n_permutations=200, gamma=0.3, verbose=1)
    assert "permutation 51 of 200" in capfd.readouterr().err


REFUSED = [
    ({"X": X, "y": np.ones(N)}, "y holds one class only"),
    ({"X": X, "y": Y[:10]}, r"Y has shape \(10,\) for 60 rows"),
    ({"X": X, "y": np.full(N, np.nan)}, "contains nan"),
    ({"X": X, "y": T}, "not classes; train_svr fits numbers"),
    ({"X": np.full((N, 2), np.nan), "y": Y}, "nan"),
    ({"X": np.zeros((2001, 1)), "y": np.arange(2001) % 2}, "2001 rows: this is for at most 2,000 rows"),
    ({"X": X, "y": Y, "C": []}, "C is an empty list"),
    ({"X": X, "y": Y, "C": np.inf}, "C=inf"),
    ({"X": X, "y": Y, "C": "all"}, "C='all' is not known"),
    ({"X": X, "y": Y, "C": "path", "maps": True}, 'C="path" is for X and y without a machine'),
    ({"X": X, "y": T, "C": "path", "loss": "epsilon_insensitive"}, 'C="path" is for labels'),
    ({"X": X, "y": Y, "loss": "squared_hinge"}, "loss='squared_hinge' is not known"),
    ({"X": X, "y": Y, "epsilon": 0.1}, "epsilon=0.1 belongs to a regression"),
    ({"X": X, "y": T, "loss": "epsilon_insensitive", "class_weight": "balanced"}, "class_weight belongs to labels"),
    ({"X": X, "y": Y, "score": "r2"}, "it is for targets"),
    ({"X": X, "y": Y, "score": "accuracy", "scoring": "roc_auc"}, "two names of one thing"),
    ({"X": X, "y": Y, "alternative": "larger"}, "alternative='larger' is not known"),
    ({"X": X, "y": Y, "statistic": "mean"}, "statistic='mean' is not known"),
    ({"X": X, "y": Y, "stop": "early"}, "stop='early' is not known"),
    ({"X": X, "y": Y, "stop": "besag-clifford", "statistic": "max"}, "decides every column by itself"),
    ({"X": X, "y": Y, "n_permutations": -1}, "n_permutations=-1"),
    ({"X": X, "y": Y, "permutations": np.zeros((3, 5), int)}, r"permutations has shape \(3, 5\)"),
    ({"X": X, "y": Y, "permutations": np.full((3, N), N)}, "permutation 0 names row 60"),
    ({"X": X, "y": Y, "groups": np.arange(N)}, "every row is a group of its own"),
    ({"X": X, "y": Y, "groups": np.arange(5)}, "groups has 5 entries for 60 rows"),
    ({"X": X, "y": Y, "random_state": -1}, "random_state=-1"),
    ({"X": X @ X.T, "y": Y, "kernel": "precomputed", "maps": True}, "maps=True needs features"),
    ({"X": X, "y": THREE, "maps": True}, "maps=True is for one column of two classes"),
    ({"X": X, "y": Y, "maps": True, "standardize": True}, "standardize X first"),
    ({"X": X, "y": Y, "gama": 1.0}, "did you mean 'gamma'"),
    ({"X": X}, "give X and y"),
    ({"X": X, "y": Y, "cv": selection.KFold(30), "score": "roc_auc"}, "permutation 0: roc_auc of fold"),
    ({"X": X[:6], "y": [0, 0, 0, 0, 0, 1], "cv": 2}, "permutation 0: fold 1 trains without a row of class 1"),
    (
        {"X": X[:6], "y": [0, 0, 1, 1, 1, 1], "cv": selection.KFold(2), "n_permutations": 50},
        r"permutation \d+: fold \d trains",
    ),
]


@pytest.mark.parametrize(("words", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_what_cannot_be_is_refused_in_words(words, message):
    refused(message, svmcore.permutation_test, **words)


def test_forms_of_the_call_that_cannot_be():
    refused("C is a parameter of the estimator", svmcore.permutation_test, svm.SVC(), X, Y, C=2.0)
    refused("NuSVC is not an SVC or SVR", svmcore.permutation_test, svm.NuSVC(), X, Y)
    refused("X is given twice", svmcore.permutation_test, X, Y, X=X)
    refused("without names", svmcore.permutation_test, X, Y, 5, 10, 1.0)
    refused('C="path" is for permutation_test', svmcore.cross_val_many, X, Y, C="path")


def test_an_indefinite_kernel_is_said_once():
    K = X @ X.T - 3.0 * np.eye(N)
    with pytest.warns(svmcore.ConvergenceWarning, match="negative eigenvalue") as caught:
        svmcore.cross_val_many(K, Y, kernel="precomputed", tol=1.0)
    assert len([w for w in caught if "eigenvalue" in str(w.message)]) == 1


def test_missed_tolerances_are_said():
    with pytest.warns(svmcore.ConvergenceWarning, match="machines missed the tolerance 1e-15"):
        found = svmcore.cross_val_many(X, Y, gamma=0.3, C=100.0, tol=1e-15)
    assert not found.converged


@pytest.mark.slow
def test_p_values_are_uniform_under_the_null_and_stopped_tests_decide_alike():
    """1,000 tests of 199 permutations of labels that mean nothing."""
    rng, found = np.random.default_rng(0), []
    words = {"cv": 4, "n_permutations": 199, "gamma": 0.3, "score": "roc_auc", "tol": 1e-3}
    for seed in range(1000):
        points, labels = rng.normal(size=(24, 3)), rng.permutation(np.arange(24) % 2)
        test = svmcore.permutation_test(points, labels, random_state=seed, **words)
        short = svmcore.permutation_test(points, labels, random_state=seed, stop="besag-clifford", **words)
        assert (short.pvalue <= 0.05) == (test.pvalue <= 0.05)
        found.append(test.pvalue - rng.random() * (test.n_reached and 1.0) / 200)
    assert stats.kstest(found, "uniform").pvalue > 0.01


def test_the_pictures_of_the_largest():
    pytest.importorskip("matplotlib")
    test = svmcore.permutation_test(X, Y, n_permutations=99, kernel="linear", maps=True)
    light = svmcore.searchlight(X, Y, [[0], [1], [2, 3], []], n_permutations=99)
    pvalues = [(1 + np.sum(test.map_maxima >= abs(w))) / 100 for w in test.map]
    for level in (0.05, 0.5):
        for ax, values, corrected in (
            (test.plot(of="map", level=level), np.abs(test.map), pvalues),
            (light.plot(level=level), light.scores, light.corrected),
        ):
            found = np.flatnonzero(np.array(corrected) <= level)
            below, beyond = ax.lines[:2]
            assert beyond.get_xdata().tolist() == found.tolist()
            assert beyond.get_ydata().tolist() == values[found].tolist()
            assert len(below.get_xdata()) == len(values) - len(found)
            assert sum(bar.get_width() for bar in ax.child_axes[0].patches) == 99
            assert ax.get_title("left").startswith(f"{len(found)} of ")
    assert "0 of " in test.plot(of="map", level=0.005).get_title("left"), "99 permutations cannot say so much"
    with pytest.raises(svmcore.InputError, match="needs a test with maps=True"):
        svmcore.permutation_test(X, Y, n_permutations=3, kernel="linear").plot(of="map")
    refused("no permutation to draw", svmcore.searchlight(X, Y, [[0]]).plot)


def test_in_place_of_scikit_learns_function():
    from svmcore.estimators import permutation_test_score

    words = {"n_permutations": 10, "random_state": 3}
    for machine in (svm.SVC(gamma=0.2), svmcore.SVC(gamma=0.2)):
        found = permutation_test_score(machine, X, Y, **words)
        assert isinstance(found, permutations.PermutationTest)
        theirs = selection.permutation_test_score(machine, X, Y, **words)
        assert (found[0], found[2]) == (theirs[0], theirs[2])
        np.testing.assert_array_equal(found[1], theirs[1])
    for machine, more, why in (
        (svm.LinearSVC(), {}, r"LinearSVC is not an SVC or SVR: .* SVC\(kernel='linear'\)"),
        (svm.NuSVC(), {}, "NuSVC is not an SVC or SVR"),
        (svm.SVC(), {"scoring": "f1"}, "scoring='f1' is not one of 'accuracy', 'balanced_accuracy', 'roc_auc'"),
        (svm.SVC(), {"params": {"sample_weight": np.ones(N)}}, "params goes to each fit"),
        (svm.SVC(max_iter=5000), {}, r"SVC\(max_iter=5000\) is not what all fits share"),
        (svmcore.SVC(multi_class="ovr"), {}, r"SVC\(multi_class='ovr'\)"),
    ):
        with pytest.warns(svmcore.CostWarning, match=f"no fast way: {why}"):
            found = permutation_test_score(machine, X, Y, **words, **more)
        assert not isinstance(found, permutations.PermutationTest)
        theirs = selection.permutation_test_score(machine, X, Y, **words, **more)
        np.testing.assert_array_equal(found[1], theirs[1])


def test_a_bad_argument_in_place_of_scikit_learns_function_is_a_sentence(monkeypatch):
    from svmcore.estimators import _sklearn, permutation_test_score

    monkeypatch.setattr(_sklearn, "permutation_test_score", lambda: pytest.fail("handed on"))
    for words, message in (
        ({"y": Y[:5]}, r"Y has shape \(5,\) for 60 rows"),
        ({"cv": 1}, "cv=1 is out of range"),
        ({"n_permutations": -1}, "n_permutations=-1"),
    ):
        refused(message, permutation_test_score, svm.SVC(), **{"X": X, "y": Y} | words)
    with (
        pytest.warns(svmcore.CostWarning, match="2,001 rows are more than 2,000"),
        pytest.raises(pytest.fail.Exception),
    ):
        permutation_test_score(svm.SVC(), np.zeros((2001, 1)), np.arange(2001) % 2)
