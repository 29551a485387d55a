"""Parts on a cluster of two worker processes: same bits as in one process, also when a worker is killed on the way."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import numpy as np
import pytest
from refusals import refused

import svmcore
from svmcore.distributed import band, rounds, scan, train_linear, train_svc

pytest.importorskip("dask", reason="needs dask")
pytest.importorskip("distributed", reason="needs distributed")
pytest.importorskip("sklearn", reason="needs scikit-learn")
from svmcore.distributed import DaskLinearSVC, DaskSVC

pytestmark = [
    pytest.mark.once,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
FORM = {"working_set": 400, "tol": 1e-3}
ENDLESS = 300.0  # seconds: a call takes less than one, and what takes as many waits without end


@contextmanager
def two_workers(folder, memory="2GB"):
    """The client of a new cluster, on ports of its own, which waits as long as a busy machine takes."""
    import dask
    from distributed import Client, LocalCluster

    here = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(rounds.__file__).split("/svmcore/distributed")[0], here])
    words = {"dashboard_address": ":0", "memory_limit": memory, "local_directory": str(folder), "silence_logs": 50}
    patience = {f"distributed.comm.timeouts.{what}": "600s" for what in ("connect", "tcp")}
    patience["distributed.scheduler.allowed-failures"] = 99  # so many workers that one task may lose
    with (
        dask.config.set(patience),
        LocalCluster(n_workers=2, threads_per_worker=1, **words) as cluster,
        Client(cluster, timeout=600) as client,
    ):
        yield client
    os.environ["PYTHONPATH"] = here


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    with two_workers(tmp_path_factory.mktemp("dask")) as client:
        yield client


@pytest.fixture
def mortal(tmp_path):
    """The client of a cluster for one test, as a worker that is killed need not come back."""
    with two_workers(tmp_path) as client:
        yield client


def wavy(n=3000, d=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)).astype(np.float32)
    return X, np.sign(np.sin(2.0 * X[:, 0]) + X[:, 1] + 0.7 * rng.normal(size=n))


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Six parts on disk, and all of their rows."""
    folder = tmp_path_factory.mktemp("parts")
    X, y = wavy()
    for k, a in enumerate(np.array_split(np.arange(len(y)), 6)):
        np.savez(folder / f"{k}.npz", X=X[a], y=y[a])
    return str(folder / "*.npz"), X, y


def same_bits(one, other):
    assert one.objective == other.objective
    assert one.intercept == other.intercept
    assert one.kkt_violation == other.kkt_violation
    assert all((a == b).all() for a, b in zip(one.alpha, other.alpha, strict=True))


def test_a_cluster_gives_the_bits_of_one_process(client, files):
    pattern, X, y = files
    one = train_svc(pattern, **FORM)
    two = train_svc(pattern, client=client, **FORM)
    assert (one.engine, two.engine) == ("serial", "dask")
    same_bits(one, two)
    assert abs(two.objective - svmcore.train_svc(X, y, tol=1e-7).objective) < 1e-5 * abs(two.objective)


def _kill_one(client, seen):
    """The operating system ends one worker process, by its id, as soon as there are two that were not killed before."""
    began = time.monotonic()
    while True:
        here = {nanny.worker_address: nanny.pid for nanny in client.cluster.workers.values() if nanny.pid}
        known = client.scheduler_info(n_workers=-1)["workers"]
        alive = sorted(pid for address, pid in here.items() if address in known and pid not in seen)
        if len(alive) >= 2:
            break
        if time.monotonic() > began + 10.0:  # the one that was killed need not come back: another takes its place
            client.cluster.scale(len(client.cluster.workers) + 1)
            began += 30.0
            assert len(client.cluster.workers) < 12, "no worker comes"
        time.sleep(0.05)
    seen.append(alive[0])
    os.kill(alive[0], signal.SIGKILL)


def _killing(monkeypatch, client, stages):
    """A worker is killed as each of some stages begins for the first time. The list of those where it was."""
    dask_engine = pytest.importorskip("svmcore.distributed.dask_engine")
    killed: list[str] = []
    seen: list[int] = []

    inner = dask_engine.Dask.run

    def run(self, what, *args, **words):
        found = inner(self, what, *args, **words)
        if (name := getattr(what, "__name__", "")) in stages and name not in killed:
            killed.append(name)
            time.sleep(0.02)
            _kill_one(client, seen)
        return found

    monkeypatch.setattr(dask_engine.Dask, "run", run)
    return killed


@pytest.mark.parametrize(
    "phases",
    [
        pytest.param(["advance"], marks=pytest.mark.ci),
        pytest.param(["load", "start", "begin", "fetch", "changed", "survey"], marks=pytest.mark.slow),
        pytest.param(["correct", "decisive", "rows_in", "share_of_product", "vectors"], marks=pytest.mark.slow),
    ],
)
def test_a_killed_worker_changes_no_bit(mortal, files, phases, monkeypatch):
    monkeypatch.setattr(rounds, "CHEAP", 0.0)  # the certificate is that of the rows that decide
    pattern, *_ = files
    form = FORM | ({"working_set": 150} if "correct" in phases else {})  # so that there are groups
    one = train_svc(pattern, **form)
    killed = _killing(monkeypatch, mortal, phases)
    two = train_svc(pattern, client=mortal, **form)
    assert sorted(killed) == sorted(phases)
    assert two.engine == "dask"
    same_bits(one, two)
    assert len(two.stats["lost"]) >= len(phases)  # more where one left by itself


BANDS = ["member", "census", "heap", "take", "look", "move"]


@pytest.mark.parametrize(
    ("phases", "most_rounds"),
    [
        pytest.param(["look"], band.MOST_ROUNDS, marks=pytest.mark.ci),
        pytest.param(BANDS, band.MOST_ROUNDS, marks=pytest.mark.slow),
        pytest.param(["load", "start", "begin", "survey", "weights"], 0, marks=pytest.mark.slow),
    ],
)
def test_a_killed_worker_changes_no_bit_of_a_linear_machine(mortal, files, phases, most_rounds, monkeypatch):
    """Rounds of bands, and with none of them those of kernel machines."""
    monkeypatch.setattr(band, "LEAST", 300)
    monkeypatch.setattr(band, "SPREAD", 0.0)
    monkeypatch.setattr(band, "MOST_ROUNDS", most_rounds)
    pattern, *_ = files
    one = train_linear(pattern)
    killed = _killing(monkeypatch, mortal, phases)
    two = train_linear(pattern, client=mortal)
    assert sorted(killed) == sorted(phases)
    assert two.stats["method"] == ("band" if most_rounds else "rounds")
    assert len(two.stats["lost"]) >= len(phases)  # more where one left by itself
    same_bits(one, two)
    assert (two.coef_ == one.coef_).all()


@pytest.mark.parametrize(
    ("train", "stage"),
    [
        pytest.param(train_linear, "look", marks=pytest.mark.ci),
        pytest.param(train_svc, "advance", marks=pytest.mark.slow),
    ],
)
def test_arrays_that_are_lost_with_a_worker_are_sent_again(mortal, files, train, stage, monkeypatch):
    *_, X, y = files
    words = FORM if train is train_svc else {}
    one = train(X, y, parts=6, **words)
    killed = _killing(monkeypatch, mortal, [stage])
    two = train(X, y, parts=6, client=mortal, **words)
    assert killed == [stage]
    same_bits(one, two)


@pytest.mark.ci
@pytest.mark.parametrize("train", [train_linear, train_svc])
def test_a_worker_that_joins_late_changes_no_bit(mortal, files, train, monkeypatch):
    client = mortal
    dask_engine = pytest.importorskip("svmcore.distributed.dask_engine")
    pattern, *_ = files
    words = FORM if train is train_svc else {}
    one = train(pattern, **words)
    first = set(client.scheduler_info()["workers"])
    run, came = dask_engine.Dask.run, []

    def grown(self, function, tasks, **ask):
        if getattr(function, "__name__", "") in ("take", "advance") and not came:
            client.cluster.scale(3)
            client.wait_for_workers(3, timeout=600)
            came.extend(set(client.scheduler_info()["workers"]) - first)
            client.retire_workers(sorted(first))  # what they held, and all that is to do, is for the one that came
        return run(self, function, tasks, **ask)

    monkeypatch.setattr(dask_engine.Dask, "run", grown)
    two = train(pattern, client=client, **words)
    same_bits(one, two)
    assert len(came) == 1
    assert client.run(_turns, workers=came)[came[0]]


def _turns(dask_worker):
    """What a worker has done of parts."""
    return [entry for entry in dask_worker.state.log if str(entry[0]).startswith(("look", "advance"))]


def test_a_task_may_train(client, files):
    """In all threads that there are."""
    pattern, *_ = files
    one = train_linear(pattern).objective, train_svc(pattern, **FORM).objective
    futures = [client.submit(_trained, pattern, k, pure=False) for k in range(2)]
    assert [future.result(timeout=ENDLESS) for future in futures] == [one, one]


def _trained(pattern, _number):
    found = train_linear(pattern, engine="dask"), train_svc(pattern, engine="dask", **FORM)
    return tuple(each.objective for each in found)


def test_a_solution_keeps_little_on_the_workers(client, files):
    pattern, *_ = files

    def held():
        return {key for keys in client.has_what().values() for key in keys}

    before = held()
    kernel, flat = train_svc(pattern, client=client, **FORM), train_linear(pattern, client=client)
    patience = time.monotonic() + ENDLESS
    while len(held() - before) > 6 and time.monotonic() < patience:
        time.sleep(0.05)
    assert len(held() - before) == 6  # the coefficients of the linear machine's parts
    assert (flat.to_local().predict(files[1]) == flat.predict(files[1])).all()
    assert kernel.converged


def test_collections_of_dask(client, files):
    da = pytest.importorskip("dask.array")
    dd = pytest.importorskip("dask.dataframe")
    pd = pytest.importorskip("pandas")
    _, X, y = files
    parts = [(X[a : a + 1000], y[a : a + 1000]) for a in (0, 1000, 2000)]
    one = train_svc(parts, **FORM)
    lazy_X, lazy_y = da.from_array(X, chunks=(1000, 2)), da.from_array(y, chunks=700)
    two = train_svc(lazy_X, lazy_y, **FORM)  # the current client
    same_bits(one, two)
    assert two.engine == "dask"
    found = two.predict(lazy_X)
    assert isinstance(found, da.Array)
    assert (found.compute() == one.predict(X)).all()
    assert np.allclose(two.decision_function(lazy_X).compute(), one.decision_function(X))
    frame = dd.from_pandas(pd.DataFrame(X, columns=list("abcd")).assign(label=y), npartitions=3)
    linear = train_linear(frame, label="label")
    assert linear.converged
    assert abs(linear.objective - train_linear(parts).objective) < 1e-5 * abs(linear.objective)
    values = linear.decision_function(X[:, :4])
    found = linear.decision_function(frame[["d", "a", "c", "b"]])
    assert np.allclose(found.compute(), values)
    assert (found.compute().index == frame.compute().index).all()
    refused("it has 'label'", linear.predict, frame)
    chosen = lazy_X[lazy_X[:, 0] > lazy_X[1000:2000, 0].max().compute()]  # a chunk of these is empty
    for machine in (linear, two):
        assert len(machine.predict(chosen).compute()) == (X[:, 0] > X[1000:2000, 0].max()).sum()
    refused("no column 'klass'", train_linear, frame, label="klass")
    refused("sample_weight is the name of a column, too", train_linear, frame, label="label", sample_weight=frame["a"])
    refused("leave y and sample_weight out", train_svc, client.scatter(parts), y, client=client)
    refused("X has 3000 rows and y 2999", train_svc, lazy_X, lazy_y[1:])


def test_frames_give_series_and_arrays_give_arrays(client):
    pd = pytest.importorskip("pandas")
    frames = pytest.importorskip("dask.dataframe")
    X, y = wavy(600)
    table = pd.DataFrame(X, columns=list("abcd"), index=np.arange(600) * 3).assign(label=np.where(y > 0, "up", "down"))
    frame = frames.from_pandas(table.assign(other=np.where(X[:, 1] > 1.0, "far", table.label)), npartitions=3)
    columns = frame[list("dcba")]
    for label, classes in (("label", 2), ("other", 3)):
        rest = ({"label", "other"} - {label}).pop()
        model = DaskSVC(client=client, label=label).fit(frame.drop(columns=rest))
        told = model.predict(columns)
        assert isinstance(told, frames.Series)
        assert (told.compute().index == table.index).all()
        assert (told.compute().to_numpy() == model.predict(X)).all()
        values = model.decision_function(columns).compute()
        assert np.allclose(values, model.decision_function(X))
        assert values.shape[1:] == (() if classes == 2 else (3,))
        share = model.calibrate(columns, frame[label]).predict_proba(columns).compute()
        assert list(share.columns) == model.classes_.tolist()
        assert (share.index == table.index).all()
        assert np.allclose(share, model.predict_proba(X))


def test_a_client_is_not_needed_after_the_fit(client, tmp_path):
    base = pytest.importorskip("sklearn.base")
    from distributed import Client

    X, y = wavy(600)
    other = Client(client.cluster, set_as_default=False)
    models = [form(client=other).fit(X, y) for form in (DaskSVC, DaskLinearSVC)]
    asked = [model.decision_function(X) for model in models]
    assert all(base.clone(model).client is other for model in models)
    other.close()
    for model, values in zip(models, asked, strict=True):
        assert (model.decision_function(X) == values).all()
    again = pickle.loads(pickle.dumps(models[0]))
    assert np.array_equal(again.decision_function(X), asked[0])
    assert models[0].to_local().converged


def test_a_part_that_vanishes_is_named(client, tmp_path, monkeypatch):
    X, y = wavy(600)
    for k in range(3):
        np.savez(tmp_path / f"{k}.npz", X=X[k::3], y=y[k::3])
    begin = rounds.Rounds.begin

    def begin_without_it(self):
        (tmp_path / "1.npz").unlink()
        begin(self)

    monkeypatch.setattr(rounds.Rounds, "begin", begin_without_it)
    refused(r"part .*1\.npz is gone", train_svc, str(tmp_path / "*.npz"), client=client, working_set=50)


@pytest.mark.parametrize("train", [train_linear, train_svc])
def test_a_client_that_is_closed_and_data_that_are_gone_are_said(client, train):
    from dask import array, delayed
    from distributed import Client

    X, y = wavy(600)
    held = client.scatter([X, y])
    lazy = [
        array.from_delayed(delayed(each), whole.shape, whole.dtype) for each, whole in zip(held, (X, y), strict=True)
    ]
    client.cancel(held)
    with pytest.raises(svmcore.SVMError, match=r"data that no other worker holds were lost .* run again"):
        train(*lazy, client=client)
    other = Client(client.cluster, set_as_default=False)
    other.close()
    refused("client= is closed; give one that is connected", train, X, y, client=other)
    assert train(X, y, client=client, parts=2).converged


@pytest.mark.parametrize("train", [train_linear, train_svc])
def test_a_client_need_not_be_the_current_one(client, files, train):
    from distributed import Client

    with Client(client.cluster, set_as_default=False) as other, client.as_current():
        assert train(files[0], client=other).objective == train(files[0]).objective


# ---- what ends in the middle of a call -------------------------------------------------------------------------------

AGAIN = "run again, with checkpoint= to go on from the last round"


@pytest.fixture(scope="module")
def few(tmp_path_factory):
    """Three small parts on disk."""
    folder = tmp_path_factory.mktemp("few")
    X, y = wavy(600)
    for k in range(3):
        np.savez(folder / f"{k}.npz", X=X[k::3], y=y[k::3])
    return str(folder / "*.npz")


def whole(train, pattern, client):
    """A call that trains, and fetches what it has found."""
    return train(pattern, client=client, **({"working_set": 100} if train is train_svc else {})).to_local()


def ended(call):
    """What a call says, or the answer that it gives; it works in a thread, so that a wait without end is seen."""
    found = []

    def work():
        try:
            found.append(call())
        except svmcore.SVMError as error:
            found.append(str(error))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(ENDLESS)
    assert not thread.is_alive(), "it waits without end"
    (answer,) = found
    return answer


def at_stages(monkeypatch, act):
    """`act(name)` as the work of a stage begins: that of parts, and of the engine itself."""
    dask_engine = pytest.importorskip("svmcore.distributed.dask_engine")

    def hooked(owner, method, name_of=lambda *args: ""):
        inner = getattr(owner, method)

        def call(self, *args, **keywords):
            act(f"{method} {name_of(*args)}".strip())
            return inner(self, *args, **keywords)

        monkeypatch.setattr(owner, method, call)

    for method in ("workers", "sources", "gather", "losses"):
        hooked(dask_engine.Dask, method)
    hooked(dask_engine.Dask, "run", lambda function, tasks: getattr(function, "__name__", "pick"))


def stages(monkeypatch, call):
    """The names of all stages of a call, in turn."""
    seen = []
    with monkeypatch.context() as patch:
        at_stages(patch, seen.append)
        call()
    return list(dict.fromkeys(seen))


def disturbed(monkeypatch, stage, act, call):
    """What a call says, or gives, that is disturbed as one of its stages begins."""
    acted = []

    def once(name):
        if name == stage and not acted:
            acted.append(name)
            act()

    with monkeypatch.context() as patch:
        at_stages(patch, once)
        found = ended(call)
    assert acted == [stage]
    return found


@pytest.mark.parametrize(
    ("train", "meanwhile"),
    [
        (train_linear, True),
        (train_linear, False),
        pytest.param(train_svc, True, marks=pytest.mark.ci),
        pytest.param(train_svc, False, marks=pytest.mark.ci),
    ],
)
def test_a_client_that_is_closed_in_the_middle_of_a_call_ends_it(client, few, train, meanwhile, monkeypatch):
    """At every stage: before it, and while it is waited for."""
    from distributed import Client

    names = stages(monkeypatch, lambda: whole(train, few, client))
    assert len(names) > 8
    right, faster = whole(train, few, client), []
    for name in names:
        other = Client(client.cluster, set_as_default=False)
        closing = threading.Thread(target=other.close)

        def close(other=other, closing=closing):
            closing.start()
            while other.status == "running":
                time.sleep(0.001)
            if not meanwhile:
                closing.join()

        said = disturbed(monkeypatch, name, close, lambda other=other: whole(train, few, other))
        closing.join()
        if meanwhile and isinstance(said, svmcore.Solution):  # it was faster than the closing
            assert (said.objective, said.intercept) == (right.objective, right.intercept)
            faster.append(name)
        else:
            assert said.startswith(f"the client was closed before the work was over; {AGAIN}"), name
    assert len(faster) < len(names) / 2


@contextmanager
def one_process(folder):
    """The address and the id of a process that is a whole cluster."""
    program = (
        "import sys; from distributed import LocalCluster\n"
        "cluster = LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=':0',\n"
        "                       protocol='tcp', host='127.0.0.1', local_directory=sys.argv[1], silence_logs=50)\n"
        "print(cluster.scheduler_address, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONPATH": str(rounds.__file__).split("/svmcore/distributed")[0]}, stderr=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        try:
            yield process.stdout.readline().strip(), process
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("train", "stage"),
    [
        (train_svc, "gather"),
        pytest.param(train_svc, "run advance", marks=pytest.mark.ci),
        *(pytest.param(train_linear, stage, marks=pytest.mark.ci) for stage in ("run take", "run member")),
    ],
)
def test_a_scheduler_that_is_killed_in_the_middle_of_a_call_ends_it(tmp_path, few, train, stage, monkeypatch):
    from distributed import Client

    with one_process(tmp_path) as (address, process):
        with Client(address, set_as_default=False, timeout=600) as client:
            said = disturbed(monkeypatch, stage, process.kill, lambda: whole(train, few, client))
            client._timeout = 0.1  # it looks for its scheduler in vain
        assert AGAIN in said
        assert "the scheduler, and all that its workers held, was lost before the work was over" in said


@pytest.mark.ci
@pytest.mark.parametrize("train", [train_linear, train_svc])
def test_a_cluster_that_is_closed_in_the_middle_of_a_call_ends_it(mortal, few, train, monkeypatch):
    close = threading.Thread(target=mortal.cluster.close)
    stage = "run look" if train is train_linear else "run survey"
    said = disturbed(monkeypatch, stage, close.start, lambda: whole(train, few, mortal))
    close.join()
    assert AGAIN in said


@pytest.mark.ci
@pytest.mark.parametrize("train", [train_linear, train_svc])
def test_a_cluster_without_workers_is_not_waited_for_without_end(mortal, few, train, monkeypatch):
    """Those that are there leave in the middle of a call, and none comes; then there is none from the beginning."""
    dask_engine = pytest.importorskip("svmcore.distributed.dask_engine")
    monkeypatch.setattr(dask_engine, "_PATIENCE", 5.0)
    monkeypatch.setattr(dask_engine, "_LOOK", 0.5)
    words = f"no worker was there for 5 seconds, or the scheduler did not answer; start workers, and {AGAIN}"
    leave = lambda: mortal.cluster.scale(0)  # noqa: E731
    stage = "run look" if train is train_linear else "run survey"
    assert disturbed(monkeypatch, stage, leave, lambda: whole(train, few, mortal)) == words
    assert ended(lambda: whole(train, few, mortal)) == words


@pytest.mark.slow
@pytest.mark.parametrize(("train", "n"), [(train_linear, 500_000), (train_svc, 60_000)])
def test_processes_of_one_gigabyte_are_enough(tmp_path, train, n):
    """None is killed, paused or begun again, the answer is that of one process, and nothing stays behind."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 20)).astype(np.float32)
    y = np.sign(
        (X[:, :5] ** 2).sum(axis=1) - 5.0 + rng.normal(size=n) if train is train_svc else X[:, 0] + rng.normal(size=n)
    )
    words = {"gamma": 0.05} if train is train_svc else {}
    with two_workers(tmp_path, memory="1GB") as client:
        before = client.run(os.getpid)
        found = train(X, y, parts=16, client=client, **words)
        assert client.run(os.getpid) == before
        assert not any(client.run(_too_much).values())
        assert found.stats["lost"] == []
        assert found.converged
        assert found.relative_gap < 1e-4
        same_bits(found, train(X, y, parts=16, **words))
        local = found.to_local()
        assert (
            abs(svmcore.certificate(X, y, local.alpha, local.intercept, C=1.0, **_kernel(words)).kkt_violation) <= 1e-3
        )
        del found
        patience = time.monotonic() + ENDLESS
        while any(client.has_what().values()) and time.monotonic() < patience:
            time.sleep(0.05)
        assert not any(client.has_what().values())


def _kernel(words):
    return words or {"kernel": "linear"}


def _too_much(dask_worker):
    """Whether a worker was ever near its limit: above the share at which dask pauses it."""
    import resource

    limit = dask_worker.memory_manager.memory_limit
    assert limit == 10**9
    return (
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        > dask_worker.memory_manager.memory_pause_fraction * limit
    )


@pytest.mark.slow
def test_a_straggler_changes_no_bit(client, files, monkeypatch):
    pattern, *_ = files
    one = train_svc(pattern, **FORM)
    slow = min(client.scheduler_info()["workers"])
    client.run(_slow_down, workers=[slow])
    try:
        two = train_svc(pattern, client=client, **FORM)
    finally:
        client.run(_hurry_up, workers=[slow])
    same_bits(one, two)


def _slow_down():
    add = scan._add

    def late(*args):
        time.sleep(0.3)
        return add(*args)

    late.quick = add
    scan._add = late


def _hurry_up():
    scan._add = scan._add.quick


def test_a_client_is_asked_for(files):
    pattern, *_ = files
    refused("is no", train_svc, pattern, client=object())
