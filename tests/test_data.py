"""Data files: what they say is what is read, and whatever is wrong is one line that names the place."""

from __future__ import annotations

import io
import struct
import time
import zipfile

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import sparse

import svmcore
from svmcore import data as reader


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
        monkeypatch.setattr(reader, "_PIECE", size)
        got, labels = svmcore.load_data(comma)
        np.testing.assert_array_equal(got, X)
        np.testing.assert_array_equal(labels, y)
        got, labels = svmcore.load_data(light)
        np.testing.assert_array_equal(got.toarray(), X)
        np.testing.assert_array_equal(labels, np.arange(300) % 2)


def test_bulk_is_taken_and_fast(write, monkeypatch):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(20_000, 20))
    text = "\n".join(",".join(f"{v:.8g}" for v in row) + ",spam eggs" for row in X)
    light = "\n".join("1 " + " ".join(f"{j + 1}:{v:.8g}" for j, v in enumerate(row)) for row in X)
    monkeypatch.setattr(reader, "_csv_lines", None)
    monkeypatch.setattr(reader, "_svmlight_lines", None)
    for content in (text, light):
        file = write(content)
        start = time.process_time()
        got, _ = svmcore.load_data(file)
        assert time.process_time() - start < 5.0
        np.testing.assert_allclose(dense(got), X, rtol=1e-7)


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
        (b"\x1f\x8b\x08\x00", "decompress"),
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
    with pytest.raises(svmcore.InputError, match=message):
        svmcore.load_data(file, label=label)


def test_name_of_a_label_without_header(write):
    with pytest.raises(svmcore.InputError, match="has no header; give the label column 'y' by its number"):
        svmcore.load_data(write("1,2,0\n"), label="y")


@pytest.mark.parametrize("source", [3, None, "demo:nothing", "bad\0name", b"\xff\0"])
def test_sources_that_are_none(source):
    with pytest.raises(svmcore.InputError, match=r"neither|no built-in set|not a possible file name"):
        svmcore.load_data(source)


def test_files_that_are_not_there(tmp_path):
    with pytest.raises(FileNotFoundError):
        svmcore.load_data(tmp_path / "none.csv")
    with pytest.raises(IsADirectoryError):
        svmcore.load_data(tmp_path)


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
    with pytest.raises(svmcore.InputError, match=message):
        svmcore.load_data(write(archive(**members), "x.npz"))


def test_memory_is_asked_for_before_it_is_taken(write, monkeypatch):
    monkeypatch.setattr("svmcore._check.available_bytes", lambda: 1e8)
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
        return reader._npz(name, file)
    return reader._text(name, file, label)


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


@given(st.data())
def test_any_damage_to_an_archive_is_an_input_error(draws):
    whole = archive(X=npy(np.arange(12.0).reshape(4, 3)), y=npy(np.array([0, 1, 0, 1])))
    content = bytearray(whole)
    for _ in range(draws.draw(st.integers(1, 4))):
        at = draws.draw(st.integers(4, len(content) - 1))
        content[at] = draws.draw(st.integers(0, 255))
    cut = draws.draw(st.one_of(st.just(len(content)), st.integers(5, len(content))))
    try:
        X, y = load_bytes(bytes(content[:cut]))
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
    rows = reader._svmlight_bulk(text)
    if rows is not None:
        for bulk, line in zip(rows, reader._svmlight_lines("x", reader._Piece(1, text)), strict=True):
            np.testing.assert_array_equal(bulk, line)
    for delimiter in (b",", b";", b""):
        for width in (2, 3):
            layout = reader._Layout(delimiter, width, width - 1, None)
            table = reader._csv_bulk(text, layout)
            if table is not None:
                X, y = reader._csv_lines("x", reader._Piece(1, text), layout)
                np.testing.assert_array_equal(table[0], X)
                assert table[1].tolist() == y.tolist()


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
