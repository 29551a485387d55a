"""Compiling ahead."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from svmcore.cli.output import DONE, Report


def warmup(args: argparse.Namespace) -> int:
    """Compile what is named, for this machine or into a file for others."""
    from svmcore.compiler import jit as compiler
    from svmcore.compiler.warm import warmup as compile_ahead

    os.environ.setdefault("SVMCORE_QUIET", "1")  # nobody needs to be told of warmup here
    if not args.quiet:
        print("compiling, for up to a minute", file=sys.stderr)
    begin = time.perf_counter()
    compile_ahead(args.what, jobs=args.jobs, bundle=args.bundle, processor=args.processor)
    report = Report("warmup", args.json)
    report.tell("seconds", time.perf_counter() - begin, f"{time.perf_counter() - begin:.1f}")
    report.facts["what"] = args.what
    report.tell("compiler", compiler.description(), compiler.description())
    if args.bundle:
        size = Path(args.bundle).stat().st_size
        report.add("written", f"{args.bundle} ({size / 1e6:.1f} MB)", file=args.bundle, bytes=size)
        report.rows.append(("next", f"SVMCORE_BUNDLE={args.bundle} where it shall be used"))
    report.show()
    return DONE
