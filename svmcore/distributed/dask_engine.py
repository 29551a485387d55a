"""The engine of a dask cluster, collections of dask as parts, and predictions as lazy arrays. The only importer of dask.

Everything is a future of a pure function: dask places it, moves it, and computes again what a lost worker held, from the
sources and from what the master sent, which the scheduler keeps. That is little: rows go from worker to worker. Arrays of
the user are scattered, without their lineage; where they are lost the fit scatters them again and starts afresh.
"""

from __future__ import annotations

import asyncio
import functools
import importlib
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import CancelledError
from concurrent.futures import wait as wait_for
from contextlib import ExitStack
from time import monotonic
from typing import Any, ParamSpec, TypeVar

import dask
import numpy as np
from dask import array as da
from distributed import Client, Future, KilledWorker, get_client, get_worker, wait, worker_client

from svmcore._errors import InputError, SVMError
from svmcore.base.door import entered
from svmcore.distributed import files
from svmcore.distributed.answer import framed, of_rows
from svmcore.distributed.engine import POLL, Halted, Lost, Serial
from svmcore.distributed.parts import Held
from svmcore.problem import border

P = ParamSpec("P")
T = TypeVar("T")
_CLOSED = ("closing", "closed")  # what a client says of itself then
_AT_WORK = "running"  # and as long as all is well: whatever else it says, its futures are lost
_GONE = ("CancelledError", "FutureCancelledError", "FuturesCancelledError", "FutureLostError")  # names of its errors
_CUT = ("CommClosedError",)
_LOOK = 2.0  # seconds between looks whether a worker is still there
_PATIENCE = 300.0  # seconds to wait for a worker, or for a word of the scheduler


def _client(client: Any) -> Client:
    if client is None:
        try:
            return get_client()
        except ValueError:
            raise InputError(
                "client=None and there is no current client of dask; make one with distributed.Client(...), "
                "or use engine='serial'"
            ) from None
    if not isinstance(client, Client) or client.asynchronous:
        raise InputError(f"client={client!r} is no (synchronous) distributed.Client")
    if client.status in _CLOSED:
        raise InputError(
            "client= is closed; give one that is connected, or make a new one with distributed.Client(...)"
        )
    return client


def _in_words(method: Callable[P, T]) -> Callable[P, T]:
    """A method of something that has a `client`; where this was closed, or data have vanished, it says so in a sentence."""

    @functools.wraps(method)
    def call(*args: P.args, **keywords: P.kwargs) -> T:
        owner: Any = args[0]
        try:
            return method(*args, **keywords)
        except Exception as error:
            status, name = owner.client.status, type(error).__name__
            if isinstance(error, SVMError | Halted) or (status == _AT_WORK and name not in _GONE + _CUT):
                raise
            if status in _CLOSED:
                lost = "the client was closed before the work was over"
            elif status != _AT_WORK or name in _CUT:
                lost = "the scheduler, and all that its workers held, was lost before the work was over"
            else:
                lost = "data that no other worker holds were lost with a worker, or cancelled"
            raise (Lost if owner.client.status == _AT_WORK and name in _GONE else SVMError)(
                f"{lost}; run again, with checkpoint= to go on from the last round, and give files or collections instead "
                "of arrays that are kept in one place"
            ) from None

    return call


class Dask(Serial):
    """The workers of a cluster."""

    name = "dask"

    def __init__(self, client: Any, n_threads: int | None = None) -> None:
        super().__init__(n_threads or 1)
        self._task = ExitStack()
        self.client = _client(client)
        try:
            get_worker()
        except ValueError:
            pass
        else:  # the thread of a task is for other tasks as long as it waits for them
            self._task.enter_context(worker_client())
        if not self.workers():
            self.patient()
        self._before = 0
        self._before = len(self.losses())
        self.given: list[Any] = []

    def wait(self, ask: Callable[[], Awaitable[Any]], *, stop: bool = False, needs_workers: bool = True) -> Any:
        """What `ask` gives on the loop of the client: the one place where anything of a cluster is waited for.

        Dask's own calls have no end where the client is closed meanwhile, as nobody is left to answer. Here the state of the
        client is seen ten times a second, and every `_LOOK` seconds the list of workers. `stop`: `poll` may end it.
        """

        async def answered() -> Any:
            with self.client.as_current():  # else dask takes another client, or finds none
                return await ask()

        if self.client.status != _AT_WORK:
            raise CancelledError
        asked = asyncio.run_coroutine_threadsafe(answered(), self.client.loop.asyncio_loop)
        seen = looked = monotonic()
        try:
            while not wait_for([asked], timeout=POLL).done:
                if self.client.status != _AT_WORK:
                    raise CancelledError
                if stop and self.poll():
                    raise Halted
                now = monotonic()
                if needs_workers and now > looked + _LOOK:
                    here, looked = self.workers(), now
                    seen = now if here else seen
                if now > seen + _PATIENCE:
                    raise SVMError(
                        f"no worker was there for {_PATIENCE:g} seconds, or the scheduler did not answer; start workers, and "
                        "run again, with checkpoint= to go on from the last round"
                    )
            return asked.result()
        finally:
            asked.cancel()

    @_in_words
    def workers(self) -> list[str]:
        """Addresses of the workers that are there now."""
        return sorted(self.wait(self.client.nthreads, needs_workers=False))

    @_in_words
    def patient(self) -> None:
        """Wait for a worker, if there is none."""
        self.wait(lambda: self.client.wait_for_workers(1))

    @_in_words
    def sources(self, X: Any, y: Any, weight: Any, label: Any, parts: int | None) -> list[Any]:
        """Collections become futures of parts, whose lineage dask keeps; files are read by the workers."""
        lazy = _delayed_parts(X, y, weight, label)
        if lazy is not None:
            self.given = lazy
            return self.client.compute(lazy, optimize_graph=False)  # type: ignore[no-any-return]
        if parts is None and hasattr(X, "shape"):
            parts = max(1, min(4 * len(self.workers()), int(X.shape[0]) // 1000))
        self.given = files.sources(X, y, weight, label=label, parts=parts)
        return self.sent()

    @_in_words
    def sent(self) -> list[Any]:
        """Sources for the workers: files as they are, arrays scattered."""
        held = [source for source in self.given if isinstance(source, Held)]
        sent = iter(self.wait(lambda: self.client.scatter(held, hash=False)) if held else [])
        return [next(sent) if isinstance(source, Held) else source for source in self.given]

    @_in_words
    def again(self) -> list[Any] | None:
        """The sources once more after a loss; None where there is nothing of ours that may have been lost."""
        return self.sent() if any(isinstance(source, Held) for source in self.given) else None

    @_in_words
    def run(self, function: Callable[..., Any], tasks: Iterable[tuple[Any, ...]], *, ask: bool = True) -> list[Any]:
        """As `Serial.run`: futures."""
        if ask and self.poll():
            raise Halted
        columns = [list(column) for column in zip(*tasks, strict=True)]
        return self.client.map(function, *columns, pure=False) if columns else []

    @_in_words
    def read_again(self, function: Callable[..., Any], sources: list[Any], args: list[Any]) -> list[Any]:
        """As `Serial.read_again`: of what is here, here; of files and collections, on the workers."""
        once = dask.delayed(function, pure=False)
        pairs = list(zip(self.given, args, strict=True))
        found = [function(*pair) if isinstance(pair[0], Held) else self.client.compute(once(*pair)) for pair in pairs]
        return self.gather(found)

    @_in_words
    def gather(self, handles: list[Any]) -> list[Any]:
        """As `Serial.gather`."""
        pending = [handle for handle in handles if isinstance(handle, Future)]
        try:
            if pending:
                self.wait(lambda: wait(pending), stop=True)
            found: list[Any] = self.wait(lambda: self.client.gather(handles))
        except KilledWorker as error:
            raise SVMError(
                f"a part ended the process of every worker that took it ({error}); most often it needs more memory than "
                "a worker has: give more and smaller parts"
            ) from None
        return found

    @_in_words
    def losses(self) -> list[str]:
        """As `Serial.losses`: all that the scheduler has seen go since the beginning."""
        events = self.wait(lambda: self.client.get_events("all"), needs_workers=False)
        return [event["worker"] for _, event in events if event.get("action") == "remove-worker"][self._before :]

    def close(self) -> None:
        """As `Serial.close`."""
        self._task.close()


# ---- collections -----------------------------------------------------------------------------------------------------


def _of_frame(name: str, frame: Any, label: Any, weight: Any) -> Held:
    """A partition of a frame: its columns are told apart here, since dask may fuse partitions of some of them."""
    drop = [label] if weight is None else [label, weight]
    for column in drop:
        if column not in frame.columns:
            raise InputError(
                f"the frame has no column {column!r}; its columns are {', '.join(map(str, frame.columns))}"
            )
    return files.piece(name, (frame.drop(columns=drop), *(frame[column] for column in drop)))


def _chunks(values: Any, like: Any, name: str, count: int) -> list[Any]:
    """A vector in as many pieces as X has."""
    if not hasattr(values, "dask"):
        sizes = getattr(like, "chunks", ((np.nan,),))[0]
        if np.isnan(sum(sizes)):
            raise InputError(f"X has parts of unknown lengths; give {name} as a collection of dask with the same parts")
        values = da.from_array(entered(values, name), chunks=(sizes,))
    if isinstance(values, da.Array):
        values = values.reshape(-1) if values.ndim > 1 else values
        if isinstance(like, da.Array) and not np.isnan(sum(like.chunks[0]) + sum(values.chunks[0])):
            if like.shape[0] != values.shape[0]:
                raise InputError(f"X has {like.shape[0]} rows and {name} {values.shape[0]}; give one number a row")
            values = values.rechunk((like.chunks[0],))
        pieces = list(values.to_delayed().ravel())
    else:
        pieces = list(values.to_delayed(optimize_graph=False))
    if len(pieces) != count:
        raise InputError(f"X has {count} parts and {name} has {len(pieces)}; give collections with the same parts")
    return pieces


def _delayed_parts(X: Any, y: Any, weight: Any, label: Any) -> list[Any] | None:
    """The parts of a collection, or None for anything else."""
    of_frame, of_pair = (dask.delayed(function, pure=False) for function in (_of_frame, files.piece))
    if isinstance(X, (list, tuple)) and len(X) and all(hasattr(x, "dask") or isinstance(x, Future) for x in X):
        if isinstance(X[0], da.Array):
            X, y = da.concatenate(X), None if y is None else da.concatenate(y)
            weight = None if weight is None else da.concatenate(weight)
        else:
            files.refuse_beside(y, weight)
            return [of_pair(str(k), pair) for k, pair in enumerate(X)]
    if not hasattr(X, "dask"):
        return None
    if isinstance(X, da.Array):
        if X.ndim != 2:
            raise InputError(f"X has {X.ndim} dimension(s); it must have two, samples by features")
        X = X.rechunk({1: -1})
        pieces = list(X.to_delayed().ravel())
    else:
        pieces = list(X.to_delayed(optimize_graph=False))
        if y is None:
            if label is None:
                raise InputError("a data frame needs y, or the name of the column of labels as label=")
            if hasattr(weight, "shape"):
                raise InputError("with label= sample_weight is the name of a column, too; or give y and sample_weight")
            return [of_frame(str(k), piece, label, weight) for k, piece in enumerate(pieces)]
    if y is None:
        raise InputError("y is missing; give one label a row")
    given = (y, "y"), (weight, "sample_weight")
    beside = [_chunks(values, X, name, len(pieces)) for values, name in given if values is not None]
    return [of_pair(str(k), piece) for k, piece in enumerate(zip(pieces, *beside, strict=True))]


def _applied(rows: Any, machine: Any, method: str) -> Any:
    """What a method says of a chunk, which may be empty; and the data of a user may not."""
    if rows.shape[0]:
        return of_rows(rows, machine, method)
    return framed(of_rows(np.zeros((1, rows.shape[1])), machine, method)[:0], rows, machine)


def map_rows(X: Any, machine: Any, method: str) -> Any:
    """Predictions for a collection, lazily and by the same parts: arrays for arrays, series for frames.

    The machine goes to every worker once.
    """
    if not isinstance(X, da.Array):
        names = border.column_names(X)
        if names is not None:
            machine.columns.of(names)
        apply, machine_there = dask.delayed(_applied, pure=False), dask.delayed(machine)
        told = [apply(part, machine_there, method) for part in X.to_delayed()]
        like = _applied(X._meta, machine, method)
        # Not by map_partitions, which hands a delayed machine over as it is in the oldest dask that is allowed.
        return importlib.import_module("dask.dataframe").from_delayed(
            told, meta=like, divisions=X.divisions, verify_meta=False
        )
    X = X.rechunk({1: -1})
    like = np.asarray(getattr(machine, method)(np.zeros((1, X.shape[1]))))[:0]
    shape: dict[str, Any] = {"chunks": (X.chunks[0], like.shape[1:])} if like.ndim > 1 else {"drop_axis": 1}
    return X.map_blocks(_applied, dask.delayed(machine), method, dtype=like.dtype, meta=like, **shape)
