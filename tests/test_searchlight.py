"""A searchlight is a permutation test for every group of features, by the same permutations."""

from __future__ import annotations

import numpy as np
import pytest
from refusals import refused
from repeats import brief
from scipy import sparse

import svmcore
from svmcore._types import Status

pytestmark = pytest.mark.compiled

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 12))
Y = (X[:, 4] + 0.5 * RNG.normal(size=40) > 0).astype(int)
GROUPS = [np.arange(k, k + 3) for k in range(0, 12, 3)]
MATRIX = np.array([np.isin(np.arange(12), own) for own in GROUPS])


@pytest.mark.parametrize(
    "neighbours", [GROUPS, MATRIX, sparse.csr_array(MATRIX), sparse.coo_array(MATRIX * 0.5)], ids=type
)
def test_every_group_is_a_permutation_test(neighbours):
    found = svmcore.searchlight(X, Y, neighbours, n_permutations=30, random_state=2)
    alone = [
        svmcore.permutation_test(X[:, own], Y, n_permutations=30, random_state=2, kernel="linear") for own in GROUPS
    ]
    assert found.scores.tolist() == [test.score for test in alone]
    assert found.pvalues.tolist() == [test.pvalue for test in alone]
    largest = np.max([test.permutation_scores for test in alone], axis=0)
    np.testing.assert_array_equal(found.permutation_maxima, largest)
    np.testing.assert_allclose(found.corrected, [(1 + np.sum(largest >= s - 1e-12)) / 31 for s in found.scores])
    assert (found.n_fits, found.status) == (4 * 31 * 5, Status.CONVERGED)
    assert found.violation <= 1e-3
    assert repr(found).startswith("<Searchlight: 4 of 4 groups, largest accuracy 0.")


def test_a_stack_of_kernel_matrices():
    stack = np.array([X[:, own] @ X[:, own].T for own in GROUPS], np.float32)
    found = svmcore.searchlight(stack, Y, kernel="precomputed", cv=8)
    for K, score in zip(stack, found.scores, strict=True):
        assert score == svmcore.cross_val_many(K.astype(float), Y, cv=8, kernel="precomputed").scores.mean()
    assert np.isnan(found.pvalues).all()
    assert np.isnan(found.corrected).all()


def test_many_folds_of_a_stack():
    stack = np.array([X[:, own] @ X[:, own].T for own in GROUPS * 6], np.float32)
    columns = np.array([RNG.permutation(Y) for _ in stack]).T
    words = {"cv": 8, "kernel": "precomputed", "C": [0.1, 2.0], "tol": 1e-8}
    for labels in (Y, columns):
        found = svmcore.cross_val_many(stack, labels, **words)
        assert found.scores.shape == (24, 2, 8)
        assert found.decisions.shape == (24, 2, 40)
        assert found.converged
        for k, K in enumerate(stack):
            alone = svmcore.cross_val_many(K.astype(float), labels if labels.ndim == 1 else labels[:, k], **words)
            np.testing.assert_allclose(found.decisions[k], alone.decisions[0], atol=1e-6)
            np.testing.assert_array_equal(found.scores[k], alone.scores[0])
        three = svmcore.cross_val_many(stack, labels, n_jobs=3, **words)
        np.testing.assert_array_equal(found.decisions, three.decisions)
    short = svmcore.cross_val_many(stack, Y, callback=lambda report: True, **words)
    assert (short.status, len(short.scores)) == (Status.CALLBACK, 16)
    refused("Y has 2 columns for a stack of 24 matrices", svmcore.cross_val_many, stack, columns[:, :2], **words)
    refused(r"a stack of kernel matrices has \(m, n, n\)", svmcore.cross_val_many, stack, Y)


def test_threads_change_no_bit():
    many = [RNG.permutation(12)[:4] for _ in range(40)]
    words = {"n_permutations": 25, "kernel": "rbf", "gamma": 0.2, "C": 3.0}
    one, two, three = (svmcore.searchlight(X, Y, many, n_jobs=k, **words) for k in (1, 2, 3))
    for other in (two, three):
        np.testing.assert_array_equal(one.scores, other.scores)
        np.testing.assert_array_equal(one.permutation_maxima, other.permutation_maxima)


def test_groups_without_features_and_early_ends():
    found = svmcore.searchlight(X, Y, [GROUPS[0], np.array([], int)], n_permutations=3)
    assert np.isfinite(found.scores).tolist() == [True, False]
    assert np.isfinite(found.corrected).tolist() == [True, False]
    short = svmcore.searchlight(X, Y, GROUPS * 10, n_permutations=3, callback=lambda report: True)
    assert short.status is Status.CALLBACK
    assert 0 < np.isfinite(short.scores).sum() < 40
    assert np.isnan(short.corrected).all()
    assert np.isnan(short.permutation_maxima).all()


@pytest.mark.filterwarnings("ignore")
def test_scores_are_those_of_nilearns_searchlight():
    decoding = pytest.importorskip("nilearn.decoding", reason="nilearn is not installed")
    nibabel, svm = pytest.importorskip("nibabel"), pytest.importorskip("sklearn.svm")
    from nilearn.image.resampling import coord_transform
    from nilearn.maskers.nifti_spheres_masker import apply_mask_and_get_affinity

    values = np.random.default_rng(0).normal(size=(4, 4, 4, 40))
    values[1:3, 1:3, 1:3] += 0.8 * Y
    images = nibabel.Nifti1Image(values, np.diag([3.0, 3.0, 3.0, 1.0]))
    mask = nibabel.Nifti1Image(np.ones((4, 4, 4), np.uint8), images.affine)
    voxels = np.asarray(mask.dataobj).nonzero()
    seeds = np.array(coord_transform(*voxels, mask.affine)).T
    points, neighbours = apply_mask_and_get_affinity(seeds, images, radius=5.0, allow_overlap=True, mask_img=mask)
    found = svmcore.searchlight(points, Y, neighbours, cv=5)
    theirs = decoding.SearchLight(mask, radius=5.0, estimator=svm.SVC(kernel="linear", tol=1e-6), cv=5).fit(images, Y)
    np.testing.assert_array_equal(found.scores, theirs.scores_[voxels])


@pytest.mark.filterwarnings("ignore")
def test_scores_are_those_of_estimators_over_time_in_mne():
    decoding = pytest.importorskip("mne.decoding", reason="mne is not installed")
    svm = pytest.importorskip("sklearn.svm")
    epochs = np.random.default_rng(0).normal(size=(40, 5, 12))
    epochs[Y == 1, :, 4:7] += 0.7
    stack = np.einsum("ict,jct->tij", epochs, epochs)
    found = svmcore.cross_val_many(stack, Y, cv=5, kernel="precomputed")
    sliding = decoding.SlidingEstimator(svm.SVC(kernel="linear", tol=1e-6), scoring="accuracy", verbose=False)
    theirs = decoding.cross_val_multiscore(sliding, epochs, Y, cv=5, verbose=False)
    np.testing.assert_array_equal(found.scores.T, theirs)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"X": X, "neighbours": None}, "rows and features"),
        ({"X": X, "neighbours": []}, "neighbours is empty"),
        ({"X": X, "neighbours": [[99]]}, "group 0 of neighbours"),
        ({"X": X, "neighbours": sparse.csr_array(np.eye(5))}, "neighbours has 5 columns, and X 12 features"),
        ({"X": X, "neighbours": GROUPS, "kernel": "precomputed"}, "knows no features"),
        ({"X": X, "neighbours": GROUPS, "C": [1.0, 2.0]}, "takes one number"),
        ({"X": X, "neighbours": GROUPS, "C": "path"}, "takes one number"),
        ({"X": X, "neighbours": GROUPS, "y": np.column_stack([Y, Y])}, "y has 2 columns"),
        ({"X": np.full((2, 40, 40), np.nan), "kernel": "precomputed"}, "matrix 0: .*nan"),
    ],
    ids=brief,
)
def test_what_cannot_be_is_refused_in_words(words, message):
    refused(message, svmcore.searchlight, **{"y": Y} | words)
