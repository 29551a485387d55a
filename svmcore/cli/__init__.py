"""The command line: ``cv``, ``path``, ``train``, ``predict``, ``gp``, ``info``, ``demo``. Training is that of the library.

`parser` says what may be typed; `paths`, `cv`, `machines`, `gp` are the commands; `files` reads, `output` prints and writes.

Results go to standard output, everything else to standard error. Exit status: 0 done, 1 did not converge or ended early
(the result is still written), 2 bad input (one line that says what and where), 130 interrupted (what there was is
written). Commands are imported when they run, and heavy modules where they are needed, so that help and complaints come at
once.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import os
import signal
import sys
import threading
import warnings
from collections.abc import Sequence

from svmcore._errors import StoppedError, SVMError
from svmcore.cli.output import BAD_INPUT, EARLY, INTERRUPTED, say
from svmcore.cli.parser import build
from svmcore.cli.svmtrain import prediction, translated


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    if "numpy" not in sys.modules:  # products are small: threads of the linear algebra would only wait for each other
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.setdefault("SVMCORE_PROGRESS", "0")  # a command has its own
    _open_streams()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            args = parsed(sys.argv[1:] if argv is None else argv)
            _import_numpy()
            command = getattr(importlib.import_module(f"svmcore.cli.{args.home}"), args.command)
            status = int(command(args))
            sys.stdout.flush()
            return status
    except SystemExit as stop:  # argparse has said what there is to say
        return stop.code if isinstance(stop.code, int) else BAD_INPUT
    except KeyboardInterrupt:
        say("interrupted; nothing was written")
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output has gone
        _no_more_output()
        return EARLY
    except StoppedError as error:  # before there was anything to keep
        say(f"{error}; nothing was written")
        return INTERRUPTED if "interrupted after" in str(error) else EARLY
    except SVMError as error:
        say(f"error: {error}")
    except MemoryError:
        say("error: not enough memory for this; try --sample-limit")
    except OSError as error:
        say(f"error: {error.filename or 'standard output'}: {error.strerror or error}")
        if error.filename is None:
            _no_more_output()
    return BAD_INPUT


def parsed(words: Sequence[str]) -> argparse.Namespace:
    """What was typed; after "train" and "predict" it may be what svm-train and svm-predict understand."""
    words = list(words)
    in_words = {"train": translated, "predict": prediction}.get(words[0] if words else "", list)
    return build().parse_args(words[:1] + in_words(words[1:]))


def _import_numpy() -> None:
    """Import numpy, and hear Ctrl-C afterwards: in the middle numpy takes it for a damaged installation."""
    presses: list[int] = []
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return
    signal.signal(signal.SIGINT, lambda number, _: presses.append(number))
    try:
        import numpy  # noqa: F401, ICN001
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if presses:
        raise KeyboardInterrupt


def _open_streams() -> None:
    """Streams that are closed are empty; what the encoding of an output lacks is written as its number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115
        elif mode == "w" and isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _no_more_output() -> None:
    """What is still waiting to be printed would fail once more when the process ends."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
