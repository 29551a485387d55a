"""Data sets in every format there and back; compressed ones; tables of Arrow; columns of words."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
from pathlib import Path

import numpy as np
import pytest
from refusals import refused
from scipy import sparse

import svmcore
from svmcore.data import Wanted, read
from svmcore.models import archive

pytestmark = pytest.mark.once

RNG = np.random.default_rng(0)
X = RNG.normal(size=(700, 3)) * (RNG.random((700, 3)) < 0.6)
NUMBERS = RNG.normal(size=700)
LABELS = RNG.integers(0, 3, 700)
WORDS = np.array(["yes", "no", "a, b"])[LABELS]
TEXT = b"a,b,y\n1,2,0\n3,4,1\n"


def dense(values: object) -> np.ndarray:
    return values.toarray() if sparse.issparse(values) else values


@pytest.mark.parametrize(
    "end", ["svm", "libsvm", "txt.gz", "svmlight.xz", "csv", "csv.gz", "tsv.bz2", "npz", "parquet", "feather", "arrow"]
)
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix], ids=["dense", "sparse"])
def test_what_is_written_is_read_back(end, form, tmp_path):
    if end in ("parquet", "feather", "arrow"):
        pytest.importorskip("pyarrow")
    file = str(tmp_path / f"set.{end}")
    light = end.split(".")[0] in ("svm", "libsvm", "txt", "svmlight")
    for y in (LABELS, NUMBERS) if light else (LABELS, NUMBERS, WORDS):
        svmcore.save_data(file, form(X), y)
        got, labels = svmcore.load_data(file)
        np.testing.assert_array_equal(dense(got), X)
        np.testing.assert_array_equal(labels, y)
    if not light and end != "npz":
        svmcore.save_data(file, X, LABELS, feature_names=["p", "q", "r"], label_name="s")
        table = read(file, Wanted(label="s"))
        assert (table.names, table.label_name) == (("p", "q", "r"), "s")


def test_svmlight_keeps_the_number_of_features(tmp_path):
    svmcore.save_data(tmp_path / "a.svm", np.array([[1.0, 0.0], [2.0, 0.0]]), [0, 1])
    assert svmcore.load_data(tmp_path / "a.svm")[0].shape == (2, 2)


@pytest.mark.parametrize(
    ("name", "y", "message"),
    [("a.doc", LABELS, "says no format"), ("a.npz.gz", LABELS, "says no format"), ("a.svm", WORDS, "needs numbers"),
     ("a.csv", LABELS[:5], "one label per row")],
)  # fmt: skip
def test_what_cannot_be_written(name, y, message, tmp_path):
    refused(message, svmcore.save_data, tmp_path / name, X, y)


@pytest.mark.parametrize("name", ["a.svm", "a.csv.gz", "a.npz"])
def test_what_goes_wrong_leaves_the_old_file(name, tmp_path, monkeypatch):
    file = tmp_path / name
    link = tmp_path / f"link-{name}"
    link.symlink_to(file)
    svmcore.save_data(link, X, LABELS)
    assert link.is_symlink()
    before = file.read_bytes()
    refused(r"needs numbers|one label per row", svmcore.save_data, file, X, WORDS if name == "a.svm" else LABELS[:5])
    with monkeypatch.context() as patch:
        patch.setattr("svmcore.data.writing._pieces", lambda X: iter([(0, X[:5]), (5, None)]))
        patch.setattr("svmcore.data.writing._arrays", lambda X, y: {"X": X, "y": np.array([object()])})
        with pytest.raises((AttributeError, TypeError, ValueError)):
            svmcore.save_data(file, X, LABELS)
    assert file.read_bytes() == before
    assert sorted(tmp_path.iterdir()) == sorted([file, link])


# ---- compressed ------------------------------------------------------------------------------------------------------

PACKERS = {"gzip": gzip.compress, "bzip2": bz2.compress, "xz": lzma.compress}


@pytest.mark.parametrize("kind", PACKERS)
def test_compressed_text_is_read_whatever_its_name(kind, tmp_path):
    pack = PACKERS[kind]
    (tmp_path / "a").write_bytes(pack(TEXT))
    assert svmcore.load_data(tmp_path / "a")[0].tolist() == [[1, 2], [3, 4]]
    (tmp_path / "b").write_bytes(pack(TEXT[:9]) + pack(TEXT[9:]))  # two streams, one after the other
    assert svmcore.load_data(tmp_path / "b")[0].tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize("kind", PACKERS)
def test_damaged_and_cut_streams(kind, tmp_path):
    whole = PACKERS[kind](TEXT * 50)
    (tmp_path / "a").write_bytes(whole[:-9])
    refused(r"cut off|damaged", svmcore.load_data, tmp_path / "a")
    (tmp_path / "a").write_bytes(whole[:20] + bytes(20) + whole[40:])
    refused("damaged", svmcore.load_data, tmp_path / "a")


@pytest.mark.parametrize("kind", PACKERS)
def test_a_trap_is_not_unpacked(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(archive, "FREE", 1 << 20)  # a large file takes long to pack
    line = b"0,0,0,0,0,0,0,0,0,0,0,0,0,0,1\n"
    packed = PACKERS[kind](line * 100_000)  # 3 MB
    assert len(packed) < 12_000
    (tmp_path / "a").write_bytes(packed)
    refused("unpacks to more than 100 times its length", svmcore.load_data, tmp_path / "a")


def test_no_text_inside(tmp_path):
    (tmp_path / "a").write_bytes(gzip.compress(gzip.compress(TEXT)))
    refused("no text once it is unpacked", svmcore.load_data, tmp_path / "a")


def test_compressed_text_from_standard_input(monkeypatch):
    class Stdin:
        buffer = io.BufferedReader(io.BytesIO(gzip.compress(TEXT)))

    monkeypatch.setattr("sys.stdin", Stdin)
    assert svmcore.load_data("-")[1].tolist() == [0, 1]


# ---- Arrow -----------------------------------------------------------------------------------------------------------


def frame(file: Path, **columns: object) -> str:
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    pd.DataFrame(columns).to_parquet(file, index=False)
    return str(file)


def test_a_data_frame_by_way_of_parquet(tmp_path):
    file = frame(
        tmp_path / "a.parquet", age=[30, 40, 50], town=["Oslo", "Rome", "Oslo"], member=[True, False, True],
        weight=np.array([1.5, 2.5, 3.5], dtype=np.float32), sick=["y", "n", "y"],
    )  # fmt: skip
    table = read(file, Wanted(drop=("town",)))
    assert table.names == ("age", "member", "weight")
    assert table.X.tolist() == [[30, 1, 1.5], [40, 0, 2.5], [50, 1, 3.5]]
    assert table.y.tolist() == ["y", "n", "y"]
    table = read(file, Wanted(label="age", categorical=("town", "sick")))
    assert table.names == ("town=Oslo", "town=Rome", "member", "weight", "sick=n", "sick=y")
    assert table.X[:, 0].tolist() == [1, 0, 1]
    refused(r"column 'town' holds .*drop='town'", read, file, Wanted())


def test_the_index_of_a_data_frame_is_no_feature(tmp_path):
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    pd.DataFrame({"a": [1.0, 2.0], "y": [0, 1]}, index=["p", "q"]).to_parquet(tmp_path / "a.parquet")
    assert svmcore.load_data(tmp_path / "a.parquet")[0].tolist() == [[1.0], [2.0]]


def test_what_tables_lack(tmp_path):
    with pytest.raises(svmcore.InputError, match="row 2: a missing value in column 'a'"):
        svmcore.load_data(frame(tmp_path / "a.parquet", a=[1, None], y=[0, 1]))
    refused("row 2: inf in column 'a'", svmcore.load_data, frame(tmp_path / "a.parquet", a=[1.0, np.inf], y=[0, 1]))
    with pytest.raises(svmcore.InputError, match="row 1: the label is missing"):
        svmcore.load_data(frame(tmp_path / "a.parquet", a=[1.0, 2.0], y=[None, "a"]))
    refused("no column 'z'", svmcore.load_data, frame(tmp_path / "a.parquet", a=[1.0, 2.0], y=[1, 2]), label="z")


def test_without_pyarrow_a_sentence_says_so(tmp_path, monkeypatch):
    (tmp_path / "a.parquet").write_bytes(b"PAR1" + bytes(40))
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(svmcore.MissingExtraError, match=r"svmcore\[arrow\]"):
        svmcore.load_data(tmp_path / "a.parquet")


# ---- categories ------------------------------------------------------------------------------------------------------

PEOPLE = "age,town,sick,colour\n30,Oslo,1,red\n40,Rome,0,blue\n50,Oslo,1,blue\n"


@pytest.mark.parametrize("bulk", [True, False])
def test_words_become_columns(bulk, tmp_path, monkeypatch):
    if not bulk:
        monkeypatch.setattr("svmcore.data.delimited._csv_bulk", lambda *_: None)
    (tmp_path / "a.csv").write_text(PEOPLE)
    for asked in (("town", "colour"), (2, "colour"), ("words",)):
        table = read(tmp_path / "a.csv", Wanted("sick", categorical=asked))
        assert table.names == ("age", "town=Oslo", "town=Rome", "colour=blue", "colour=red")
        assert table.X.tolist() == [[30, 1, 0, 0, 1], [40, 0, 1, 1, 0], [50, 1, 0, 1, 0]]
        assert [category.levels for category in table.categories] == [("Oslo", "Rome"), ("blue", "red")]
    (tmp_path / "b.csv").write_text("colour,town,age\nblue,Paris,20\n")
    again = Wanted("sick", categories=table.categories, width=3, names=("age", "town", "colour"))
    with pytest.raises(svmcore.InputError, match=r"row 1 of the data, column 2: 'Paris' is no category of 'town'"):
        read(tmp_path / "b.csv", again._replace(label=-1))
    found = read(tmp_path / "b.csv", again._replace(label=-1, unknown="ignore"))
    assert found.names == ("colour=blue", "colour=red", "town=Oslo", "town=Rome", "age")
    assert found.X.tolist() == [[1, 0, 0, 0, 20]]


def test_words_that_are_no_categories(tmp_path):
    (tmp_path / "a.csv").write_text("a,b,y\n1,?,0\n2,x,1\n")
    refused(r"line 2, column 2: a missing value \(column 'b'\)", read, tmp_path / "a.csv", Wanted(categorical=("b",)))
    (tmp_path / "a.csv").write_text("a,b,y\n" + "".join(f"1,w{k},{k % 2}\n" for k in range(1001)))
    refused("1,001 different words", read, tmp_path / "a.csv", Wanted(categorical=("b",)))
    refused("'y' is no feature", read, tmp_path / "a.csv", Wanted(categorical=("y",)))
    refused("no columns of words", read, "demo:monk1", Wanted(categorical=("y",)))


def test_a_file_without_header_for_a_machine_that_knows_names(tmp_path):
    (tmp_path / "a.csv").write_text("7,50,Bern,0\n8,60,Ulm,1\n")
    wanted = Wanted(names=("age", "town"), width=2)
    refused(r"column 3: 'Bern' .* no header, and the machine knows .*'age', 'town'", read, tmp_path / "a.csv", wanted)
