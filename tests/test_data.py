"""Data files: what they say is what is read, and whatever is wrong is one line that names the place."""

from __future__ import annotations

import io
import struct
import zipfile

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from refusals import refused
from scipy import sparse

import svmcore
from svmcore import data as reader
from svmcore.data import delimited, svmlight
from svmcore.data.layout import Layout

pytestmark = pytest.mark.once


@pytest.fixture
def write(tmp_path):
    def write(content: bytes | str, name: str = "data.txt") -> str:
        file = tmp_path / name
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        return str(file)

    return write


def dense(X):
    return X.toarray() if sparse.issparse(X) else X


# ---- what is read ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "X", "y"),
    [
        ("+1 1:0.5 3:-2\n-1 2:1e-3\n", [[0.5, 0, -2], [0, 1e-3, 0]], [1, -1]),
        ("1 0:5 2:7\n2 1:6\n", [[5, 0, 7], [0, 6, 0]], [1, 2]),
        ("# from a program\n\n1 qid:3 1:2 # good\n-1 qid:3 2:3\n", [[2, 0], [0, 3]], [1, -1]),
        ("1 3:3 1:1\n-1 2:2", [[1, 0, 3], [0, 2, 0]], [1, -1]),
        ("1\n-1 1:4\r\n", [[0], [4]], [1, -1]),
        ("0.5 1:1\n1 1:2\n", [[1], [2]], [0.5, 1.0]),
        ("  +1\t1:.5  2:5.   \n -1 1:+1E2\n", [[0.5, 5], [100, 0]], [1, -1]),
    ],
)
def test_svmlight(write, text, X, y):
    got, labels = svmcore.load_data(write(text))
    assert sparse.issparse(got)
    np.testing.assert_array_equal(dense(got), X)
    np.testing.assert_array_equal(labels, y)
    assert labels.dtype.kind == ("i" if isinstance(y[0], int) else "f")


@pytest.mark.parametrize(
    ("text", "X", "y", "label"),
    [
        ("1,2,0\n3,4,1\n", [[1, 2], [3, 4]], [0, 1], -1),
        ("a,b,class\n1,2,M\n3,4,R\n", [[1, 2], [3, 4]], ["M", "R"], -1),
        ("class,a,b\nM,1,2\nR,3,4\n", [[1, 2], [3, 4]], ["M", "R"], "class"),
        ("M,1,2\nR,3,4\n", [[1, 2], [3, 4]], ["M", "R"], 1),
        ("a;y;b\n1;0;2\n3;1;4\n", [[1, 2], [3, 4]], [0, 1], 2),
        ("1\t2\t0\n3\t4\t1\n", [[1, 2], [3, 4]], [0, 1], -1),
        ("  1   2 0 \n3\t4  1\n", [[1, 2], [3, 4]], [0, 1], -1),
        ("# made by hand\n\n1, 2 ,0\r\n\n 3,4, 1\r\n# end", [[1, 2], [3, 4]], [0, 1], -1),
        ('"first, second","y"\n1,"no way"\n"2",yes\n', [[1], [2]], ["no way", "yes"], -1),
        ("\ufeffx,y\n1,0\n2,1\n", [[1], [2]], [0, 1], "y"),
        ("1,2,Iris setosa\n3,4,Iris virginica\n", [[1, 2], [3, 4]], ["Iris setosa", "Iris virginica"], -1),
        ("größe,y\n1,größer\n2,kleiner\n", [[1], [2]], ["größer", "kleiner"], -1),
        ("1,2,0.5\n3,4,1\n", [[1, 2], [3, 4]], [0.5, 1], -1),
        ("1,2,True\n3,4,false\n", [[1, 2], [3, 4]], [1, 0], -1),
        ("1,2,True\n3,4,Falsey\n", [[1, 2], [3, 4]], ["True", "Falsey"], -1),
        ("#1.5,2,1\n1.5,2,1\n3,4,0\n", [[1.5, 2], [3, 4]], [1, 0], -1),
        ("\n# x,y\nx,y\n3,0\n", [[3]], [0], -1),
    ],
)
def test_csv(write, text, X, y, label):
    got, labels = svmcore.load_data(write(text), label=label)
    np.testing.assert_array_equal(got, X)
    assert labels.tolist() == y


def test_npz(tmp_path):
    X = np.array([[1, 0, 2], [0, 0, 3]])
    file = tmp_path / "x.npz"
    np.savez_compressed(file, X=np.asfortranarray(X), y=np.array([1, -1], dtype=np.int8), other=np.arange(3))
    got, y = svmcore.load_data(file)
    np.testing.assert_array_equal(got, X)
    assert got.dtype == np.float64
    assert y.tolist() == [1, -1]
    S = sparse.csr_matrix(X)
    np.savez(file, data=S.data, indices=S.indices, indptr=S.indptr, shape=S.shape, y=np.array(["a", "b"]))
    got, y = svmcore.load_data(file)
    np.testing.assert_array_equal(got.toarray(), X)
    assert y.tolist() == ["a", "b"]


@pytest.mark.parametrize(
    ("name", "stored"),
    [("spirals", "noisy_spirals"), ("two-spirals", "two_spirals"), *[(f"monk{k}",) * 2 for k in "123"]],
)
def test_built_in_sets_are_the_published_ones(name, stored, data_set):
    X, y = svmcore.load_data(f"demo:{name}")
    expected, signs = data_set(stored)
    np.testing.assert_allclose(X, expected, atol=1e-12)
    np.testing.assert_array_equal(y, signs)


def test_pieces_join(write, monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.integers(-5, 5, (300, 7)).astype(float)
    y = rng.choice(["no", "perhaps"], 300)
    X[0, -1] = 1.0
    rows = [",".join(map(str, row)) + f",{label}" for row, label in zip(X, y, strict=True)]
    comma = write("a,b,c,d,e,f,g,label\n" + "\n".join(rows), "x.csv")
    pairs = [" ".join([str(k % 2), *(f"{j + 1}:{v}" for j, v in enumerate(row) if v)]) for k, row in enumerate(X)]
    light = write("\n".join(pairs) + "\n", "x.svm")
    for size in (17, 100, 1000, 1 << 20):
        monkeypatch.setattr("svmcore.data.text.PIECE", size)
        got, labels = svmcore.load_data(comma)
        np.testing.assert_array_equal(got, X)
        np.testing.assert_array_equal(labels, y)
        got, labels = svmcore.load_data(light)
        np.testing.assert_array_equal(got.toarray(), X)
        np.testing.assert_array_equal(labels, np.arange(300) % 2)


@pytest.mark.parametrize("piece", [10_000, 1 << 22])
def test_any_number_of_comments_may_come_first(write, monkeypatch, piece):
    monkeypatch.setattr("svmcore.data.text.PIECE", piece)
    comments = ("# " + "x" * 78 + "\n") * 1400
    for header in ("", "a,y\n"):
        X, y = svmcore.load_data(write(comments + header + "0.5,1\n0.25,0\n" * 9000))
        assert X.shape == (18_000, 1)
        assert y.tolist() == [1, 0] * 9000


@pytest.mark.parametrize("named", [True, False])
def test_lines_may_be_long(write, named):
    values = np.random.default_rng(0).normal(size=(60, 8000))
    lines = [",".join(map(repr, row.tolist())) + ",1" for row in values]
    header = [",".join([*(f"feature number {k}" for k in range(8000)), "y"])] if named else []
    X, y = svmcore.load_data(write("\n".join(header + lines)))
    np.testing.assert_array_equal(X, values)
    assert y.tolist() == [1] * 60


# ---- complaints ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "holds no data"),
        ("# nothing\n\n", "holds no data"),
        ("1 1:2\n-1 1:x\n", r"data.txt, line 2, column 6: 'x' is not a finite number"),
        ("1 1:2\n-1 1:3 2\n", r"line 2, column 8: '2' is not an index:value pair"),
        ("1 1:2\n\n-1 1:3 1:4\n", r"line 3, column 8: feature 1 appears twice"),
        ("1 1:2\n-1 -3:3\n", r"line 2, column 4: feature index '-3' is not a whole number"),
        ("1 1:2\n-1 1.5:3\n", r"line 2, column 4: feature index '1.5'"),
        ("1 1:2\n-1 9999999999:3\n", r"line 2, column 4: feature index '9999999999'"),
        ("1 1:nan\n", r"line 1, column 5: 'nan' stands for a missing value"),
        ("1 1:1e999\n", r"line 1, column 5: '1e999' is too large"),
        ("1 1:2\n1:3 2:4\n", r"line 2, column 1: '1:3' where the label belongs"),
        ("1 1:2\nA 2:4\n", r"line 2, column 1: 'A' is not a finite number \(the label\)"),
        ("1 1:2:3 2:4\n", r"line 1, column 3: '1:2:3' is not an index:value pair"),
        ("1,2,0\n3,x,1\n", r"line 2, column 2: 'x' is not a finite number"),
        ("a,b,y\n1,2,0\n3,,1\n", r"line 3, column 2: a missing value \(column 'b'\)"),
        ("a,b,y\n1,2,0\n3,?,1\n", r"line 3, column 2: '\?' stands for a missing value \(column 'b'\)"),
        ("1,2,0\n3,4\n", "line 2: 2 columns, where the first line has 3"),
        ("1,2,0\n3,4,1,1\n", "line 2: 4 columns, where the first line has 3"),
        ("1,2,0\n3,inf,1\n", r"line 2, column 2: 'inf' is not a finite number"),
        ("1,2,\n3,4,1\n", "line 1, column 3: the label is missing"),
        ("1;2,5;0\n3;4;1\n", r"line 1, column 2: '2,5' is not a finite number; use a decimal point"),
        ("1\n2\n", "line 1: one column only"),
        ("a,b,y\n", "a header and no data"),
        ("id,1,2,0\n", r"line 1, column 1: 'id' is not a finite number"),
        (b"1,2,0\n3,\x00,1\n", "line 2: a zero byte"),
        (b"\xff\xfe1\x00,\x00", "UTF-16"),
        (b"\x1f\x8b\x08\x00", "cut off"),
        (b"\x28\xb5\x2f\xfd\x00\x00", "compressed by zstd"),
        (b"\x93NUMPY", "one array"),
        ("1,2,0\n3,4_0,1\n", r"line 2, column 2: '4_0' is not"),
    ],
)
def test_complaints(write, content, message):
    with pytest.raises(svmcore.InputError, match=message) as caught:
        svmcore.load_data(write(content))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("label", "message"),
    [
        ("z", "no column 'z'; its header names 'a', 'b', 'y'"),
        ("b", None),
        (4, "columns 1 to 3; there is no column 4"),
        (0, "there is no column 0"),
        (True, "label=True is no column"),
    ],
)
def test_label_column(write, label, message):
    file = write("a,b,y\n1,2,0\n3,4,1\n")
    if message is None:
        assert svmcore.load_data(file, label=label)[1].tolist() == [2, 4]
        return
    refused(message, svmcore.load_data, file, label=label)


def test_name_of_a_label_without_header(write):
    with pytest.raises(svmcore.InputError, match="has no header; give the column 'y' for the label by its number"):
        svmcore.load_data(write("1,2,0\n"), label="y")


@pytest.mark.parametrize("source", [3, None, "demo:nothing", "bad\0name", b"\xff\0"])
def test_sources_that_are_none(source):
    refused(r"neither|no built-in set|not a possible file name", svmcore.load_data, source)


# ---- headers, words, columns left out, labels that are missing ----------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "0,1,2\n0.5,1.5,0\n1.5,2,1\n",  # DataFrame(...).to_csv(index=False)
        "1,2,3,4\n5,6,7,0\n5,8,7,1\n",
        "0,1,2,y\n1,2,3,4\n1,2,5,4\n",
        "2019,2020,sick\n1.5,2.5,1\n2.5,3.5,0\n",
    ],
)
def test_a_line_of_numbers_that_may_be_names_is_a_question(write, text):
    file = write(text)
    refused(r"line 1: the numbers .* can be names .*: header=True or header=False", svmcore.load_data, file)
    assert svmcore.load_data(file, header=True)[0].shape[0] == 2
    if "y" not in text and "sick" not in text:
        assert svmcore.load_data(file, header=False)[0].shape[0] == 3


@pytest.mark.parametrize("text", ["0,1\n1,0\n", "1,2,0\n2,1,1\n", "3,4,0\n2.5,1.5,1\n1,2,1\n", "1,0,2\n1,1,2\n"])
def test_numbers_that_are_data_are_no_question(write, text):
    assert svmcore.load_data(write(text))[0].shape[0] == text.count("\n")


def test_header_can_be_denied(write):
    with pytest.raises(svmcore.InputError, match="line 1, column 1: 'a' is not a finite number"):
        svmcore.load_data(write("a,b,y\n1,2,0\n3,4,1\n"), header=False)
    refused("header=1 is neither True nor False", svmcore.load_data, "demo:monk1", header=1)


def test_true_and_false_are_numbers(write, monkeypatch):
    file = write("a,b,y\nTrue,2,yes\nfalse,4,no\nTRUE,True,no\n")
    expected = [[1, 2], [0, 4], [1, 1]]
    for _ in range(2):
        X, y = svmcore.load_data(file)
        assert (X.tolist(), y.tolist()) == (expected, ["yes", "no", "no"])
        monkeypatch.setattr(delimited, "_csv_bulk", lambda *_: None)
    refused(r"line 2, column 1: 'true\.5' is not a finite number", svmcore.load_data, write("a,y\ntrue.5,1\n1,2\n"))


def test_words_name_the_column_and_the_remedy(write):
    people = "age,sex,sick\n50,F,1\n60,M,0\n"
    message = (
        r"line 2, column 2: 'F' is not a finite number \(column 'sex'\); if this is the label: label='sex'; "
        r"else make numbers of its words first \(pandas.get_dummies\), or leave the column out: drop='sex'"
    )
    refused(message, svmcore.load_data, write(people))
    with pytest.raises(svmcore.InputError, match=r"line 3, column 1: 'x' is not a finite number \(column 'age'\)$"):
        svmcore.load_data(write(people.replace("60", "x")), drop="sex")
    X, y = svmcore.load_data(write(people), drop="sex")
    assert (X.tolist(), y.tolist()) == ([[50], [60]], [1, 0])
    refused("drop='the sex'", svmcore.load_data, write(people.replace("sex", "the sex")))


def test_dropped_columns_may_hold_anything(write, monkeypatch):
    file = write("id,a,note,y\n7,1,fine,0\n8,2,so so,1\n")
    expected = svmcore.load_data(file, drop=["id", 3])
    assert expected[0].tolist() == [[1], [2]]
    monkeypatch.setattr(delimited, "_csv_bulk", lambda *_: None)
    np.testing.assert_array_equal(svmcore.load_data(file, drop=["id", "note"])[0], expected[0])
    for drop, message in [
        ("z", "no column 'z'; its header names 'id', 'a', 'note', 'y'"),
        (9, "columns 1 to 4; there is no column 9 to drop"),
        ([1, 2, 3], "no column left for a feature"),
        (True, "drop names True, which is no column"),
    ]:
        refused(message, svmcore.load_data, file, drop=drop)
    assert svmcore.load_data(write("a,y,note\n1,0,\n2,1,x\n"), drop="note")[1].tolist() == [0, 1]
    refused("no named or numbered columns to drop", svmcore.load_data, "demo:monk1", drop=1)


def test_index_of_a_data_frame_is_recognised(write):
    file = write(",a,y\n0,1.5,no\n1,2.5,yes\n")
    refused(r"the first column has no name, like the index .* drop=1,", svmcore.load_data, file)
    for drop in (1, ""):
        assert svmcore.load_data(file, drop=drop)[0].tolist() == [[1.5], [2.5]]
    with pytest.raises(svmcore.InputError, match=r"column 2: this column has no name; leave it out with drop=2"):
        svmcore.load_data(write("a,,y\n1,2,0\n3,4,1\n"))


class Frame:
    columns = ("a", "b")

    def __repr__(self):
        return "very much text"


@pytest.mark.parametrize("source", [Frame(), np.zeros((1000, 3))])
def test_data_in_memory_are_not_printed(source):
    with pytest.raises(svmcore.InputError, match=r"this is a (Frame|ndarray); data in memory go straight to") as caught:
        svmcore.load_data(source)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("content", ["1,2\n3,4\n", "1:1 2:2\n1:3 2:4\n", "0 1:1 2:2\n? 1:3 2:4\n"])
def test_without_labels(write, content):
    X, y = svmcore.load_data(write(content), label=None)
    assert y is None
    np.testing.assert_array_equal(dense(X), [[1, 2], [3, 4]])


def test_without_labels_in_an_archive(tmp_path):
    np.savez(tmp_path / "x.npz", X=np.eye(2))
    X, y = svmcore.load_data(tmp_path / "x.npz", label=None)
    assert y is None
    np.testing.assert_array_equal(X, np.eye(2))


FOR_TWO = reader.Wanted(width=2)


@pytest.mark.parametrize(
    ("content", "labels", "known"),
    [
        ("1,2\n3,4\n", None, None),
        ("1,2,no\n3,4,yes\n", ["no", "yes"], None),
        ("1,2,\n3,4,\n", None, None),
        ("1,2,?\n3,4,?\n", None, None),
        ("1,2,?\n3,4,yes\n", ["yes"], [False, True]),
        ("1,2,\n3,4,yes\n", ["yes"], [False, True]),
        ("1:1 2:2\n1:3 2:4\n", None, None),
        ("? 1:1 2:2\n1 1:3 2:4\n", [1], [False, True]),
    ],
)
def test_labels_may_be_missing_where_a_machine_predicts(write, content, labels, known):
    table = reader.read(write(content), FOR_TWO)
    np.testing.assert_array_equal(dense(table.X), [[1, 2], [3, 4]])
    assert (table.y if table.y is None else table.y.tolist()) == labels
    assert (table.known if table.known is None else table.known.tolist()) == known


@pytest.mark.parametrize("content", ["x\n1\n2.5\n", "1\n2.5\n", '"x"\n1\n2.5\n'])
def test_new_points_of_one_feature_may_have_a_header(write, content):
    table = reader.read(write(content), reader.Wanted(width=1))
    np.testing.assert_array_equal(table.X, [[1.0], [2.5]])
    assert table.y is None


@pytest.mark.parametrize(
    ("header", "label", "message"),
    [
        ("a,b", None, None),
        ("b,a", None, None),
        ("y,b,a", "y", None),
        ("b,y,a", "y", None),
        ("id,b,a,y", None, "not trained with: 'id', 'y'; say which holds the labels with label=, and leave out"),
        ("a,c,y", None, "has no column 'b', which the machine was trained with; its header names 'a', 'c', 'y'"),
    ],
)
def test_names_decide_where_they_are_known(write, header, label, message):
    width = header.count(",") + 1
    file = write(header + "\n" + ",".join("1" * width) + "\n" + ",".join("2" * width) + "\n")
    wanted = reader.Wanted(width=2, names=("a", "b"))
    if message is not None:
        refused(message, reader.read, file, wanted)
        return
    table = reader.read(file, wanted)
    assert table.label_name == label
    assert sorted(table.names) == ["a", "b"]
    assert (table.y is None) == (label is None)


def archive(**members: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as out:
        for name, content in members.items():
            out.writestr(name + ".npy", content)
    return file.getvalue()


def npy(array) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    return file.getvalue()


def claim(shape: str, descr: str = "'<f8'") -> bytes:
    """An array file that claims a shape, with no content."""
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode()


def csr(**changed) -> dict[str, bytes]:
    parts = {"data": [1.0], "indices": [0], "indptr": [0, 1, 1], "shape": [2, 3], "y": [0, 1]} | changed
    return {name: npy(np.array(value)) for name, value in parts.items()}


Y = npy(np.array([1, -1]))


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"X": npy(np.eye(2))}, "it needs X and y"),
        ({}, "damaged|no data"),
        ({"X": npy(np.eye(3)), "y": Y}, "one label per row"),
        ({"X": npy(np.arange(2.0)), "y": Y}, "must have two"),
        ({"X": npy(np.array([[1, None]])), "y": Y}, "never unpickled"),
        ({"X": npy(np.array([["a"], ["b"]])), "y": Y}, "has type <U1; give numbers"),
        ({"X": npy(np.array([[1.0], [np.nan]])), "y": Y}, "X holds nan in row 2, column 1"),
        ({"X": npy(np.eye(2)), "y": npy(np.array([1, np.inf]))}, "y holds inf in row 2"),
        ({"X": claim("(1000000000000, 2)"), "y": Y}, "the file is shorter"),
        ({"X": claim("(-1, 2)"), "y": Y}, "the file is shorter"),
        ({"X": claim("(2, 1000000000000)", "'S0'"), "y": Y}, "has type"),
        ({"X": claim("(2, 0)"), "y": Y}, "X is empty"),
        ({"X": b"\x93NUMPY\x03\x00", "y": Y}, "version"),
        ({"X": b"nonsense", "y": Y}, "damaged"),
        (csr(indices=[5]), "indices run from 5"),
        (csr(indptr=[0, 2, 1]), "indptr does not rise"),
        (csr(indptr=[0, 1], shape=[10**15, 3]), "indptr has 2 entries"),
        (csr(data=[np.inf]), "X holds inf in row 1, column 1"),
        (csr(shape=3), "do not describe a CSR matrix"),
    ],
)  # fmt: skip
def test_archives(write, members, message):
    refused(message, svmcore.load_data, write(archive(**members), "x.npz"))


def test_memory_is_asked_for_before_it_is_taken(write, monkeypatch):
    monkeypatch.setattr("svmcore.problem.border.available_bytes", lambda: 1e8)
    content = archive(X=claim("(10000000, 2)") + bytes(160_000_000), y=Y)
    with pytest.raises(svmcore.NotEnoughMemoryError, match=r"x\.npz needs 0\.48 GB and 0\.10 GB are available"):
        svmcore.load_data(write(content, "x.npz"))


# ---- whatever comes --------------------------------------------------------------------------------------------------

WORDS = st.sampled_from(
    [
        "1", "-1", "+1", "0", "2:3", "1:0.5", "3:1e3", "0:1", "qid:2", ":", "1:", ":1", "nan", "inf", "1e999",
        "x", "#", "#c", '"', '"1"', "1.5", ".", "-", "1e", "1_0", "0x1", "?", "ü", "1:2:3", "é,",
        "2147483648:1", "1.0:2", "a b", "", "\t", "\r", "\x0b", "\x00",
    ]
)  # fmt: skip
SEPARATORS = st.sampled_from([" ", ",", ";", "\t", "\n", "\n", ", "])
SOUP = st.lists(st.tuples(WORDS, SEPARATORS), max_size=30).map(lambda pairs: "".join(a + b for a, b in pairs).encode())
TABLES = st.tuples(st.integers(1, 4), st.sampled_from([" ", ",", ";"]), st.lists(WORDS, max_size=30)).map(
    lambda t: "\n".join(t[1].join(t[2][k : k + t[0]]) for k in range(0, len(t[2]), t[0])).encode()
)


def check_result(X, y):
    assert X.ndim == 2
    assert X.shape[0] == y.size > 0
    assert np.isfinite(dense(X)).all() if X.shape[1] < 10_000 else np.isfinite(X.data).all()
    assert y.dtype.kind in "ifU"


def load_bytes(content: bytes, name: str = "x", label=-1):
    """`load_data` of a file with this content."""
    file = io.BytesIO(content)
    if content.startswith(b"PK\x03\x04"):
        table = reader.read_npz(name, file, reader.Wanted(label))
    else:
        table = reader._text(name, file, reader.Wanted(label))
    return table.X, table.y


@given(
    st.one_of(st.binary(max_size=200), SOUP, TABLES, st.text(max_size=80).map(lambda t: t.encode("utf-8", "replace")))
)
@example(b"1 \xc2\xa01:2\n")
@example(b'1,"\n2,3\n')
@example(b"\xef\xbb\xbf")
def test_any_text_is_data_or_an_input_error(content):
    try:
        X, y = load_bytes(content)
    except svmcore.InputError as caught:
        error = str(caught)
    else:
        error = ""
        check_result(X, y)
    assert "\n" not in error


@given(st.one_of(SOUP, TABLES))
@example(b"\t qid:2")
@example(b"1 qid:2 1:3\n2  qid:3 1:1")
def test_bulk_and_line_by_line_agree(content):
    text = content.replace(b"\0", b"") + b"\n"
    for lead in (1, 2):
        rows = svmlight._bulk(text, lead)
        if rows is not None:
            for bulk, line in zip(
                rows, svmlight._line_by_line("x", reader.TextPiece(1, text), lead, False), strict=True
            ):
                np.testing.assert_array_equal(bulk, line)
    for delimiter in (b",", b";", b""):
        for width in (2, 3):
            layout = Layout(delimiter, width, width - 1, None, categories=frozenset([0]) if width == 3 else frozenset())
            table = delimited._csv_bulk(text, layout)
            if table is not None:
                line = delimited._csv_lines("x", reader.TextPiece(1, text), layout)
                np.testing.assert_array_equal(table.X, line.X)
                assert list(table.texts) == list(line.texts)
                for k, column in table.texts.items():
                    assert column.tolist() == line.texts[k].tolist()


@given(
    st.lists(
        st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=3, max_size=3), min_size=1, max_size=8
    ),
    st.booleans(),
)
def test_numbers_survive_exactly(rows, light):
    X = np.array(rows)
    if light:
        content = "".join("1 " + " ".join(f"{k + 1}:{v!r}" for k, v in enumerate(row)) + "\n" for row in rows)
    else:
        content = "".join(",".join(map(repr, row)) + ",1\n" for row in rows)
    got, y = load_bytes(content.encode())
    np.testing.assert_array_equal(dense(got), X)
    assert (y == 1).all()


def test_files_that_count_from_0(write):
    text = "1 1:2 2:3\n-1 2:5\n"  # feature 0 is zero everywhere
    assert svmcore.load_data(write(text))[0].shape == (2, 2)
    assert svmcore.load_data(write(text), zero_based=False)[0].shape == (2, 2)
    assert svmcore.load_data(write(text), zero_based=True)[0].toarray().tolist() == [[0, 2, 3], [0, 0, 5]]
    refused("has a feature 0, and zero_based=False says", svmcore.load_data, write("1 0:2 1:3\n"), zero_based=False)
    refused("zero_based='no' is not known", svmcore.load_data, write(text), zero_based="no")


def test_files_that_lack_the_last_features(write):
    wide = write("1 1:2 4:3\n-1 2:5\n")
    assert svmcore.load_data(wide, n_features=6)[0].shape == (2, 6)
    machine = svmcore.train_svc(*svmcore.load_data(wide), kernel="linear")
    narrow = write("1 1:2\n")
    with pytest.raises(svmcore.InputError, match=r"X has 1 features a row; .* with 4; load_data takes n_features=4"):
        machine.predict(svmcore.load_data(narrow)[0])
    assert machine.predict(svmcore.load_data(narrow, n_features=4)[0]).shape == (1,)
    refused("has 4 features, and n_features=2", svmcore.load_data, write("1 1:2 4:3\n-1 2:5\n"), n_features=2)
    refused("n_features=0 is not a positive whole number", svmcore.load_data, narrow, n_features=0)
    refused("has 2 features, and n_features=3", svmcore.load_data, write("1,2,0\n3,4,1\n"), n_features=3)
