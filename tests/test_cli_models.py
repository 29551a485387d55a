"""The command line for those who come from LIBSVM, models of every kind, words in data, and places without room."""

from __future__ import annotations

import builtins
import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kept import parts_of
from refusals import refused

import svmcore
from svmcore.cli.svmtrain import translated

pytestmark = pytest.mark.once

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 3)).round(3)
Y = np.where(X[:, 0] + 0.5 * X[:, 1] > 0, 1, -1)


@pytest.fixture
def run(run):
    """With data in its folder."""
    svmcore.save_data("train.txt", X, Y)
    svmcore.save_data("three.txt", X, Y + (X[:, 2] > 0.5))
    svmcore.save_data("numbers.txt", X, X[:, 0] - X[:, 2])
    return run


# ---- svm-train's command line ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("-s 0 -t 2 -c 10 -g 0.5 -e 1e-4 d m", "--kernel=rbf -C 10 --tol 1e-4 --as-svm-train -g 0.5 d m"),
        ("-c10 -t0 d", "--kernel=linear -C 10 --as-svm-train d"),
        ("-s 1 -n 0.3 -c 5 d", "--nu=0.3 --as-svm-train d"),
        ("-s 2 -p 0.3 d", "--one-class --nu=0.5 --as-svm-train d"),
        ("-s 3 -p 0.3 -n 0.2 d", "--svr --epsilon=0.3 --as-svm-train d"),
        ("-s 4 -n 0.2 -p 0.3 -c 2 d", "--svr --nu=0.2 -C 2 --as-svm-train d"),
        ("-w1 5 -w-1 2 -m 200 -h 0 -q -b 0 d", "--cache-mb 200 --class-weight=1=5,-1=2 --as-svm-train -q d"),
        ("-v 5 d", "--folds 5 --as-svm-train d"),
        ("d -C 3 --svr -k poly -o m.npz", "d -C 3 --svr -k poly -o m.npz"),
        ("-h", "-h"),
        ("d -c 2 -h", "d -c 2 -h"),
        ("-s 1 -b 1 d", "--nu=0.5 --probability --as-svm-train d"),
        ("-s 3 -w1 5 d", "--svr --as-svm-train d"),
        ("-s 1 -w1 5 d", "--nu=0.5 --as-svm-train d"),
        ("--svr -p 0.2 d", "--epsilon=0.2 --as-svm-train --svr d"),
    ],
)
def test_letters_of_svm_train(typed, meant):
    assert " ".join(translated(typed.split())) == meant


@pytest.mark.parametrize(
    ("typed", "message"),
    [("-b 2 d", "-b 2: 1 asks for probabilities"), ("-s 5 d", "no such type"), ("-t 9 d", "no such kernel"),
     ("d -c", "-c needs a value")],
)  # fmt: skip
def test_letters_that_mean_nothing(run, typed, message):
    assert message in run.refused("train", *typed.split())


@pytest.mark.parametrize("name", ["m", "m.npz"])
@pytest.mark.parametrize(
    ("data", "kind"), [("train.txt", []), ("three.txt", []), ("train.txt", ["-s", "1", "-n", "0.3"])]
)
def test_probabilities_go_with_the_machine(run, name, data, kind):
    assert run("train", "-b", "1", "-c", "2", *kind, data, name, "-q")[0] == 0
    _, err = run.works("predict", "-b", "1", data, name, "out")
    head, *lines = Path("out").read_text().splitlines()
    table = np.array([line.split() for line in lines], dtype=float)
    machine, labels = svmcore.load(name), np.array(head.split()[1:], dtype=int)
    p = machine.predict_proba(X)
    column = {label: k for k, label in enumerate(machine.classes.tolist())}
    np.testing.assert_allclose(table[:, 1:], p[:, [column[label] for label in labels.tolist()]], atol=1e-5)
    np.testing.assert_array_equal(table[:, 0], labels[table[:, 1:].argmax(axis=1)])
    _, y = svmcore.load_data(data)
    own = p[np.arange(60), [column[label] for label in y.tolist()]]
    share = np.array([np.mean(y == label) for label in y])
    assert -np.log(own).mean() < -0.8 * np.log(share).mean()
    share = np.mean(table[:, 0] != y)
    assert f"wrong: {100 * share:.3g} %" in err
    assert svmcore.load(name).fields().keys() >= ({"calibration"} if len(labels) == 2 else {"machine0_calibration"})
    out, _ = run.works("predict", "-b", "1", data, name, "--json")
    assert json.loads(out)["predictions"][0].keys() == set(map(str, labels.tolist()))


def test_probabilities_of_numbers_and_what_has_none(run):
    assert run("train", "-s", "3", "-b", "1", "numbers.txt", "m", "-q")[0] == 0
    (spread,) = svmcore.load("m").calibration
    assert 0.0 < spread < 1.0
    out, err = run.works("predict", "-b", "1", "numbers.txt", "m")
    assert f"Laplace distribution exp(-|z| / s) / (2 s), s = {spread:.6g}" in err
    assert out == run("predict", "numbers.txt", "m")[1]
    assert run("train", "train.txt", "-o", "plain.npz", "-q")[0] == 0
    cases = {
        ("predict", "plain.npz", "train.txt", "-b", "1"): "has no probabilities; train it with svmcore train -b 1",
        ("predict", "m", "train.txt", "-b1", "--values"): "leave out one of them",
        ("train", "-s", "2", "-b", "1", "train.txt"): "a machine of one class has no probabilities",
        ("train", "-v", "5", "-b", "1", "train.txt"): "-v trains none to keep",
        ("train", "train.txt", "--probability", "--loss", "squared_hinge"): "leave out --loss squared_hinge",
    }
    for words, message in cases.items():
        assert message in run.refused(*words)
    assert run("predict", "plain.npz", "train.txt", "-b", "0", "-q")[0] == 0
    text = Path("m").read_text()
    Path("m").write_text(text.replace("probA ", "probA 1 "))
    refused("probA need 1 numbers each", svmcore.load, "m")


def test_probabilities_of_folds_that_are_trained_one_by_one(run):
    options = {"auto": [], "smo": ["--solver", "smo"], "limited": ["--time-limit", "60"]}
    found = {}
    for name, words in options.items():
        words = ["--class-weight", "1=2", "--tol", "1e-8", "--standardize", *words]
        assert run("train", "train.txt", "--probability", *words, "-o", f"{name}.npz", "-q")[0] == 0
        found[name] = svmcore.load(f"{name}.npz").calibration
    np.testing.assert_allclose(found["smo"], found["limited"], atol=1e-4)
    np.testing.assert_allclose(found["auto"], found["smo"], atol=0.1)  # all folds have the scaling of all rows
    np.savez("given.npz", X=X @ X.T, y=Y)
    assert run("train", "given.npz", "-k", "precomputed", "--probability", "-o", "g.npz", "-q")[0] == 0
    np.savez("alone.npz", X=X, y=np.where(np.arange(60) == 7, 5, Y))
    assert run("train", "alone.npz", "--probability", "-o", "a.npz", "-q")[0] == 0
    p = svmcore.load("a.npz").predict_proba(X)[:, 2]
    assert p[7] > 5.0 * np.delete(p, 7).mean()


def test_a_damaged_sigmoid_is_refused(run):
    assert run("train", "train.txt", "--probability", "-o", "m.npz", "-q")[0] == 0
    np.savez("bad.npz", **parts_of("m.npz") | {"calibration": np.array([np.nan, 1.0])})
    refused("its probabilities are not those of a sigmoid", svmcore.load, "bad.npz")


def test_a_command_line_of_libsvm_works_as_it_is(run):
    out, _ = run.works(
        "train", *["-s", "0", "-t", "2", "-c", "10", "-g", "0.5", "-e", "1e-4", "-q", "train.txt", "model"]
    )
    assert "written      model" in out
    assert Path("model").read_text().startswith("svm_type c_svc\nkernel_type rbf\ngamma 0.5\nnr_class 2\n")
    assert run("predict", "train.txt", "model", "out", "-q")[0] == 0  # in the order of svm-predict
    found = svmcore.train_svc(X, Y, 10.0, gamma=0.5, tol=1e-4)
    np.testing.assert_array_equal(np.loadtxt("out"), found.predict(X))
    assert run("predict", "model", "train.txt", "-o", "out", "-q")[0] == 0
    out, _ = run.works("train", "-c", "10", "-q", "train.txt", "-o", "own.npz", "--json")
    assert json.loads(out)["kernel"]["gamma"] == pytest.approx(1 / 3)  # svm-train's default


def test_the_end_of_a_name_decides_the_format(run):
    for name, start in (("m.model", b"svm_type"), ("m.npz", b"PK"), ("m", b"PK")):
        assert run("train", "train.txt", "-o", name, "-q")[0] == 0
        assert Path(name).read_bytes().startswith(start)
    _, err = run.works("train", "train.txt", "--standardize", "-o", "scaled.model", "-q")
    assert "scaled.model is written in svmcore's own format, not LIBSVM's" in err
    assert svmcore.load("scaled.model").standardized is not None


def test_command_lines_of_libsvm_that_say_less_or_more(run):
    assert run("train", "-t", "2", "-g", "0", "-q", "train.txt")[0] == 0  # gamma 0 is 1 / features
    assert "gamma 0.333333" in Path("train.txt.model").read_text()
    assert run("train", "-t", "3", "-r", "-5e-1", "-g", ".1", "-q", "train.txt", "m")[0] == 0
    assert "coef0 -0.5" in Path("m").read_text()
    _, err = run.works("train", "-w7", "2", "-c", "1", "-q", "train.txt", "m")
    assert "-w7 is left out" in err
    assert run("train", "train.txt", "-h")[:2] == run("train", "-h")[:2]
    svmcore.save_data("many.txt", np.repeat(X[:51], 4, axis=0), np.repeat(np.arange(51), 4))
    assert run("train", "-t", "0", "-q", "many.txt")[0] == 0
    assert svmcore.load("many.txt.model").classes.size == 51
    svmcore.save_data("rare.txt", X, np.where(np.arange(60) < 3, 5, Y))  # three rows of a class in five folds
    out, _ = run.works("train", "-v", "5", "-t", "0", "-q", "rare.txt")
    assert "Cross Validation Accuracy" in out


@pytest.mark.parametrize(
    ("words", "line"),
    [("-s 0 train.txt", "Cross Validation Accuracy"), ("-s 3 numbers.txt", "Cross Validation Mean squared error"),
     ("three.txt", "Cross Validation Accuracy")],
)  # fmt: skip
def test_cross_validation_at_one_C(run, words, line):
    out, _ = run.works("train", "-v", "3", "-c", "5", "-q", *words.split())
    assert line in out
    assert "nothing to write" in run.refused("train", "-v", "3", "-q", *words.split(), "-o", "m.npz")


def test_precomputed_kernels_of_libsvm(run):
    K = X @ X.T
    lines = [f"{y} 0:{i + 1} " + " ".join(f"{j + 1}:{v!r}" for j, v in enumerate(row)) for i, (row, y) in
             enumerate(zip(K.tolist(), Y.tolist(), strict=True))]  # fmt: skip
    Path("K.txt").write_text("\n".join(lines) + "\n")
    assert run("train", "-t", "4", "-q", "K.txt", "K.model")[0] == 0
    assert run("predict", "K.model", "K.txt", "-o", "out", "-q")[0] == 0
    found = svmcore.train_svc(K, Y, kernel="precomputed")
    np.testing.assert_array_equal(np.loadtxt("out"), found.predict(K))
    assert run("verify", "K.model", "K.txt", "--tol", "0.01")[0] == 0
    assert run("path", "K.txt", "-k", "precomputed", "--C-max", "1", "--test", "K.txt", "-q")[0] == 0
    assert run("train", "K.txt", "-k", "precomputed", "--sample-limit", "30", "-q")[0] == 0


# ---- every kind of machine, through every command --------------------------------------------------------------------

KINDS = {
    "classes": ("train.txt", []), "several": ("three.txt", []), "rest": ("three.txt", ["--classes", "ovr"]),
    "weights": ("train.txt", ["--class-weight", "balanced"]), "svr": ("numbers.txt", ["--svr", "--epsilon", "0.05"]),
    "nu": ("train.txt", ["--nu", "0.3"]), "nu-svr": ("numbers.txt", ["--svr", "--nu", "0.3"]),
    "one class": ("train.txt", ["--one-class", "--nu", "0.2"]), "standardized": ("train.txt", ["--standardize"]),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_train_info_predict_verify(run, kind):
    data, options = KINDS[kind]
    found = {}
    for command in (["train", data, "-o", "m.npz", "-q", *options], ["info", "m.npz"],
                    ["predict", "m.npz", data, "-q"], ["verify", "m.npz", data]):  # fmt: skip
        out, _ = run.works(*command, "--json")
        found[command[0]] = json.loads(out)
        assert found[command[0]]["command"] == command[0]
        assert run(*command)[0] == 0
    assert found["verify"]["ok"] is True
    assert found["verify"]["certificate"]["kkt_violation"] <= 1.1e-3
    assert len(found["predict"]["predictions"]) == 60
    model = svmcore.load("m.npz")
    np.testing.assert_allclose(found["predict"]["predictions"], model.predict(svmcore.load_data(data)[0]), rtol=1e-12)


def test_files_of_several_machines(run):
    svmcore.cv_path(X, Y, cv=3, kernel="linear", lambda_min=1.0).save("cv.npz")
    svmcore.svm_path(X, Y, kernel="linear", C_max=10.0, class_weight="balanced").save("path.npz")
    svmcore.gp_regression(X, X[:, 0], noise=0.1).save("gp.npz")
    out, _ = run.works("info", "cv.npz")
    assert "cross-validation of 60 points, 3 features, classes -1 and 1" in out
    for file, said in (("cv.npz", "PathCV is no machine of support vectors; verify the one"), ("gp.npz", "no machine")):
        for more in ([], ["--class-weight", "balanced"]):
            assert said in run.refused("verify", file, "train.txt", *more)
    assert "say with C where" in run.refused("verify", "path.npz", "train.txt", "--class-weight", "balanced")
    assert run("verify", "path.npz", "train.txt", "-C", "2", "--class-weight", "balanced")[0] == 0
    assert "holds no single machine" in run.refused("convert", "gp.npz", "gp.model")
    assert json.loads(run("verify", "path.npz", "train.txt", "-C", "2", "--json")[1])["model"]["name"] == "path.npz"


def test_verify_says_no(run):
    assert run("train", "train.txt", "-q", "-o", "m.npz")[0] == 0
    run.refused("verify", "m.npz", "numbers.txt")
    status, out, _ = run("verify", "m.npz", "train.txt", "-C", "0.3")
    assert status == 1
    assert "not optimal" in out
    svmcore.save_data("other.txt", X + 1.0, Y)
    status, out, _ = run("verify", "m.npz", "other.txt")
    assert status == 1
    assert "are no rows of these data" in out


def test_convert_models_and_data(run):
    assert run("train", "train.txt", "-q", "-o", "m.npz")[0] == 0
    assert run("convert", "m.npz", "m.model")[0] == 0
    assert Path("m.model").read_bytes().startswith(b"svm_type")
    status, out, _ = run("convert", "m.model", "back", "--to", "npz", "--json")
    assert (status, json.loads(out)["written"]) == (0, ["back"])
    np.testing.assert_array_equal(svmcore.load("back").predict(X), svmcore.load("m.npz").predict(X))
    for name in ("x.csv.gz", "x.npz", "x.svm.xz"):
        assert run("convert", "train.txt", name)[0] == 0
        got, labels = svmcore.load_data(name)
        np.testing.assert_array_equal(got.toarray() if hasattr(got, "toarray") else got, X)
        np.testing.assert_array_equal(labels, Y)
    assert "would be lost" in run.refused("convert", "train.txt", "train.txt")


# ---- features numbered from 0 ----------------------------------------------------------------------------------------


def svmlight_from_0(file: str, rows: Any, labels: Any) -> None:
    lines = [
        f"{y} " + " ".join(f"{j}:{v}" for j, v in enumerate(row) if v) for row, y in zip(rows, labels, strict=True)
    ]
    Path(file).write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize("model", ["m.npz", "two.model", "three.model", "path.npz"])
def test_the_model_knows_from_where_its_features_are_numbered(run, model):
    labels = Y + (X[:, 2] > 0.5) if model == "three.model" else Y
    rest = X * [0, 1, 1]
    svmlight_from_0("zero.txt", X, labels)
    svmlight_from_0("rest.txt", rest, labels)  # nothing here shows a feature 0
    path = model == "path.npz"
    command = ["path", "--C-max", "10", "-k", "rbf"] if path else ["train", "-C", "2"]
    assert run(*command, "zero.txt", "-q", "-o", model)[0] == 0
    want = (
        svmcore.train_classes(X, labels, 2.0, kernel="rbf") if model == "three.model" else svmcore.train_svc(X, Y, 2.0)
    )
    for file, rows in (("zero.txt", X), ("rest.txt", rest)):
        out, _ = run.works("predict", model, file, *(["-C", "2"] if path else []), "-q")
        np.testing.assert_array_equal(np.array(out.split(), dtype=int), want.predict(rows))


def test_a_process_knows_from_where_its_features_are_numbered(run):
    svmlight_from_0("zero.txt", X, Y)
    svmlight_from_0("rest.txt", X * [0, 1, 1], Y)
    assert run("gp", "zero.txt", "--noise", "0.1", "--test", "rest.txt", "-q", "-o", "found")[0] == 0
    want = svmcore.gp_regression(X, Y, noise=0.1).predict(X * [0, 1, 1])
    np.testing.assert_allclose(np.loadtxt("found")[:, 0], want, atol=1e-3)


def test_a_feature_0_that_the_model_does_not_know(run):
    assert run("train", "train.txt", "-q", "-o", "m.npz")[0] == 0
    svmlight_from_0("zero.txt", X, Y)
    assert "zero.txt has a feature 0" in run.refused("predict", "m.npz", "zero.txt", "-q")


# ---- columns of words ------------------------------------------------------------------------------------------------


def table(file: str, towns: Any, columns: tuple[str, ...] = ("age", "town", "sick")) -> None:
    values = {"age": X[:, 0], "town": towns, "sick": np.where(Y > 0, "yes", "no")}
    lines = [
        ",".join(columns),
        *(",".join(str(v) for v in row) for row in zip(*(values[c] for c in columns), strict=True)),
    ]
    Path(file).write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize("command", [["train"], ["cv", "--cv", "3", "--C-max", "10"], ["path", "--C-max", "10"]])
def test_the_model_keeps_the_words_of_its_columns(run, command):
    towns = np.array(["Oslo", "Rome", "Lima"])[np.arange(60) % 3]
    table("a.csv", towns)
    at = ["-C", "2"] if command[0] == "path" else []
    assert run(command[0], "a.csv", *command[1:], "--categorical", "town", "--standardize", "-q", "-o", "m.npz")[0] == 0
    assert "Lima, Oslo, Rome" in run("info", "m.npz")[1] or command[0] == "path"
    first, _ = run.works("predict", "m.npz", "a.csv", *at, "-q")
    table("b.csv", towns, ("town", "sick", "age"))
    assert run("predict", "m.npz", "b.csv", *at, "-q")[1] == first
    strange = towns.copy()
    strange[4] = "Bonn"
    table("c.csv", strange)
    assert "c.csv, row 5 of the data, column 2: 'Bonn' is no category of 'town'" in run.refused(
        "predict", "m.npz", "c.csv", *at, "-q"
    )
    assert run("predict", "m.npz", "c.csv", *at, "-q", "--unknown", "ignore")[0] == 0
    assert "--categorical town" in run.refused("train", "a.csv", "-q")


def test_text_of_libsvm_has_no_place_for_words(run):
    table("a.csv", np.array(["Oslo", "Rome", "Lima"])[np.arange(60) % 3])
    Path("b.csv").write_text(Path("a.csv").read_text().replace("yes", "1").replace("no\n", "0\n"))
    _, err = run.works("train", "b.csv", "m.model", "--categorical", "town", "-q")
    assert "svmcore's own format, not LIBSVM's: a model of LIBSVM has no place for columns of words" in err
    assert svmcore.load("m.model").columns.categories
    assert "features of 'town'" in run.refused("convert", "m.model", "x.model", "--to", "libsvm")
    assert not os.path.exists("x.model")


# ---- places without room ---------------------------------------------------------------------------------------------


needs_full = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full here")


@pytest.fixture
def room(tmp_path, monkeypatch):
    """Where temporary files go."""
    (tmp_path / "room").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "room"))
    return tmp_path / "room"


@needs_full
@pytest.mark.parametrize("command", ["train train.txt", "cv train.txt --cv 3 --C-max 2", "path train.txt --C-max 2"])
def test_a_full_disk_loses_nothing_and_the_report_says_where_it_is_kept(command, run, room):
    status, out, err = run(*command.split(), "-q", "-o", "/dev/full")
    assert status == 1
    assert "/dev/full could not be written: No space left on device" in err
    (kept,) = room.glob("*/*")  # a link that waits in the shared folder is not followed
    assert f"kept in {kept}" in err
    assert "certificate" in out
    assert f"written      {kept}" in out
    assert getattr(svmcore.load(kept), "converged", True)
    at = ["-C", "1"] if "path" in command else []
    status, _, err = run("predict", kept, "train.txt", "-o", "/dev/full", *at)
    assert status == 1
    assert "wrong: " in err


def test_ctrl_c_while_numpy_is_imported(run, monkeypatch):
    """numpy would say that its installation is damaged."""
    real, pressed = builtins.__import__, []

    def slow(name, *rest):
        if name == "numpy" and not pressed:
            pressed.append(name)
            signal.raise_signal(signal.SIGINT)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", slow)
    monkeypatch.setattr(signal, "getsignal", lambda _: signal.default_int_handler)
    status, out, err = run("info", "nowhere.npz")
    assert (status, out) == (130, "")
    assert "interrupted; nothing was written" in err


@needs_full
def test_converted_data_are_kept_where_there_is_room(run, room):
    Path("x.csv").symlink_to("/dev/full")
    status, _, err = run("convert", "train.txt", "x.csv")
    assert status == 1
    (kept,) = room.glob("*/x.csv")
    assert f"kept in {kept}" in err
    np.testing.assert_array_equal(svmcore.load_data(kept)[0], X)


def test_json_of_demo_and_warmup(run, monkeypatch):
    monkeypatch.setattr("svmcore.compiler.warm.warmup", lambda *_, **__: None)
    out, _ = run.works("warmup", "--json", "-q")
    assert json.loads(out)["what"] == "all"


def test_regressions_are_cross_validated(run):
    out, _ = run.works(
        "cv", "numbers.txt", "--svr", "--cv", "3", "--C-max", "10", "-q", "-o", "m.npz", "--test", "numbers.txt"
    )
    assert "absolute error" in out
    assert "off by" in out
    assert "regression" in run("info", "m.npz")[1]
    assert run("cv", "numbers.txt", "--svr", "--cv", "3", "--C-max", "10", "-q", "--json")[0] == 0
    assert "add --svr" in run("cv", "train.txt", "--epsilon", "1")[2]


@pytest.mark.parametrize(("rule", "name"), [("min", "best_C"), ("1se", "one_se_C"), ("smallest", "smallest_C")])
def test_cv_trains_where_the_rule_says(run, rule, name):
    few = ("--cv", "3", "-g", "0.5", "--C-max", "50", "--quiet")
    status, out, err = run("cv", "train.txt", "--rule", rule, "--jobs", "2", "-o", "m.npz", *few)
    assert (status, err) == (0, "")
    cv = svmcore.cv_path(X, Y, cv=3, gamma=0.5, C_max=50.0)
    C = getattr(cv, name)
    assert pytest.approx(C, rel=1e-6) == svmcore.load("m.npz").C
    (choice,) = re.findall(r"^choice +C = ([0-9.e+-]+)", out, re.MULTILINE)
    assert float(choice) == pytest.approx(C, rel=0.01)
    assert f"{cv.best_C:.3g}" in out
    facts = json.loads(run("cv", "train.txt", "--rule", rule, "--json", *few)[1])
    assert facts["validation"]["C"] == facts["C"] == pytest.approx(C, rel=1e-6)
    assert f"-C {facts['C']:.6g} " in facts["next"]


def test_cv_of_the_hinge_loss_and_its_picture_with_the_map(run):
    pytest.importorskip("matplotlib")
    from matplotlib.image import imread

    few = ("cv", "train.txt", "--cv", "3", "--C-max", "5", "--score", "hinge", "--quiet", "--plot")
    out, _ = run.works(*few, "one.png", "-g", "0.5")
    assert "validation   hinge " in out
    run.works(*few, "two.png", "-g", "0.1,0.5")
    assert imread("two.png").shape[1] > 1.8 * imread("one.png").shape[1]  # curve and map


def test_cv_of_one_class_learns_the_second_class_alone(run, tmp_path):
    """The rows of the first are for validation; what lies inside is predicted to be of the second."""
    rng = np.random.default_rng(3)
    inside, outside = rng.normal(size=(60, 2)).round(5), (4.0 + rng.normal(size=(12, 2))).round(5)
    rows = [f"{a},{b},ok\n" for a, b in inside] + [f"{a},{b},bad\n" for a, b in outside]
    (tmp_path / "o.csv").write_text("a,b,kind\n" + "".join(rows))
    out, _ = run.works("cv", "o.csv", "--one-class", "--test", "o.csv", "-o", "o.npz", "--json", "-q")
    facts = json.loads(out)
    X, y = np.vstack([inside, outside]), np.repeat(["ok", "bad"], [60, 12])
    expected = svmcore.cv_path(X, y, loss="one_class")
    assert facts["validation"]["error"] == pytest.approx(expected.best_error, abs=0.03)
    machine = svmcore.load("o.npz")
    assert machine.kind == "one class"
    assert machine.support_vectors.max() < 3.9  # none of the others was learned
    wrong = (machine.predict(X) > 0) != (y == "ok")
    assert facts["error"]["wrong"] == np.count_nonzero(wrong)
    out, _ = run.works("cv", "o.csv", "--one-class", "-q")
    assert re.search(r"svmcore cv o.csv --one-class -g [0-9.]+ -o model.npz", out), out
    for words in (("--svr",), ("--epsilon", "1"), ("--classes", "ovr"), ("--class-weight", "balanced")):
        assert f"--one-class takes no {words[0]}" in run.refused("cv", "o.csv", "--one-class", *words)


def test_the_range_of_C_follows_the_spread_of_numbers(run):
    words = ("cv", "wide.txt", "--svr", "--cv", "3", "--json", "--gamma")
    svmcore.save_data("wide.txt", X, 300.0 * X[:, 0] + 100.0 * X[:, 1] ** 2)
    out, err = run.works(*words, "0.5")
    assert json.loads(out)["validation"]["C_to"] > 1000.0
    assert "end of the range" not in err
    svmcore.save_data("wide.txt", X, 300.0 * X[:, 0])
    assert "Remedy: a larger --C-max" in run(*words, "1e-4")[2]
