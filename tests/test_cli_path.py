"""The first command line, the files it reads, and the pictures it draws."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from scipy import sparse

import svmcore
from svmcore.cli import main
from svmcore.io import load_data


@pytest.fixture
def clouds():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 3))
    return X, np.where(X[:, 0] + 0.3 * rng.normal(size=30) > 0, 1, -1)


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def test_every_format_reads_the_same(tmp_path, clouds):
    X, y = clouds
    rows = list(zip(X, y, strict=True))
    files = [
        write(tmp_path / "plain.csv", "".join(",".join(map(repr, map(float, x))) + f",{c}\n" for x, c in rows)),
        write(
            tmp_path / "named.csv",
            "label;a;b;c\n" + "".join(f"{c};" + ";".join(map(repr, map(float, x))) + "\n" for x, c in rows),
        ),
        write(
            tmp_path / "data.svm",
            "# svmlight\n"
            + "".join(
                f"{c} " + " ".join(f"{k + 1}:{float(v)!r}" for k, v in enumerate(x)) + " # end\n" for x, c in rows
            ),
        ),
    ]
    np.savez(tmp_path / "dense.npz", X=X, y=y)
    S = sparse.csr_matrix(X)
    np.savez(tmp_path / "sparse.npz", data=S.data, indices=S.indices, indptr=S.indptr, shape=S.shape, y=y)
    for file in [*files, tmp_path / "dense.npz", tmp_path / "sparse.npz"]:
        A, b = load_data(file)
        assert (np.asarray(A.toarray() if sparse.issparse(A) else A) == X).all()
        assert (np.asarray(b) == y).all()


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a.csv", "1,2,1\n3,x,0\n", "line 2, column 2"),
        ("a.csv", "a,b,y\n1,2,1\n3,4\n", "line 3"),
        ("a.csv", "1,nan,1\n2,3,0\n", "line 1, column 2"),
        ("a.svm", "1 1:2 2:3\n-1 2:1 1:4\n", "line 2, column 3"),
        ("a.svm", "1 1:2\n-1 0:1\n", "line 2, column 2"),
        ("a.svm", "1 1:2\nx 1:1\n", "line 2, column 1"),
        ("a.csv", "\n\n", "no data"),
        ("a.csv", "1\n2\n", "one column"),
    ],
)
def test_bad_files_are_named_with_line_and_column(tmp_path, capsys, name, text, says):
    file = write(tmp_path / name, text)
    assert main(["path", str(file)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert says in err
    assert name in err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["path", "demo:nothing"], "demo:monk1"),
        (["path", "/no/such/file"], "no such file"),
        (["path", "demo:monk1", "--lambda-min", "0"], "lambda_min"),
        (["path", "demo:monk1", "--gamma", "wide"], "gamma"),
    ],
)
def test_bad_arguments_are_one_line_and_status_2(capsys, arguments, says):
    assert main(arguments) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert says in err


def test_unknown_option_is_one_line():
    done = subprocess.run(
        [sys.executable, "-m", "svmcore", "path", "demo:monk1", "--kernel", "round"], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1


def test_path_command_writes_a_path_and_a_picture(tmp_path, capsys, clouds):
    pytest.importorskip("matplotlib").use("Agg")
    X, y = clouds
    np.savez(tmp_path / "d.npz", X=X, y=y)
    out, picture = tmp_path / "p.npz", tmp_path / "p.png"
    status = main(
        [
            "path",
            str(tmp_path / "d.npz"),
            "--standardize",
            "-o",
            str(out),
            "--plot",
            str(picture),
            "--test",
            str(tmp_path / "d.npz"),
        ]
    )
    assert status == 0
    assert "relative gap" in capsys.readouterr().out
    path = svmcore.load(out)
    assert path.certify().relative_gap <= 1e-8
    assert picture.stat().st_size > 20_000


def test_a_cut_run_still_writes_and_says_so(tmp_path, capsys):
    out = tmp_path / "p.npz"
    assert main(["path", "demo:spirals", "--time-limit", "0", "-o", str(out)]) == 1
    assert "ended early" in capsys.readouterr().err
    assert svmcore.load(out).ended == "time_limit"


def test_demo(tmp_path, capsys):
    pytest.importorskip("matplotlib").use("Agg")
    picture = tmp_path / "demo.png"
    assert main(["demo", "--plot", str(picture)]) == 0
    out = capsys.readouterr().out
    assert "spirals" in out
    assert "Next: svmcore path" in out
    assert picture.stat().st_size > 50_000


@pytest.mark.parametrize("what", ["alphas", "counts", "objective", "error", "all"])
def test_every_plot_returns_axes(what, clouds):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    axes = svmcore.svm_path(*clouds, gamma=0.5).plot(what)
    for ax in np.atleast_1d(axes).flat:
        assert ax.get_xscale() == "log"
        assert ax.get_title(loc="left")
    matplotlib.pyplot.close("all")
