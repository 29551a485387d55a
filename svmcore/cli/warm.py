"""Compiling ahead."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from svmcore.cli.output import Report


def warmup(args: argparse.Namespace) -> int:
    """Compile what is named, for this machine or into a file for others."""
    from svmcore.compiler import jit as compiler
    from svmcore.compiler.warm import warmup as compile_ahead

    os.environ.setdefault("SVMCORE_QUIET", "1")  # nobody needs to be told of warmup here
    if not args.quiet:
        print("compiling, for up to a minute", file=sys.stderr)
    report = Report(args)
    compile_ahead(args.what, jobs=args.jobs, bundle=args.bundle, processor=args.processor)
    report.tell("seconds", report.seconds, f"{report.seconds:.1f}")
    report.facts["what"] = args.what
    report.tell("compiler", compiler.description(), compiler.description())
    if args.bundle:
        size = Path(args.bundle).stat().st_size
        report.add("written", f"{args.bundle} ({size / 1e6:.1f} MB)", file=args.bundle, bytes=size)
        report.rows.append(("next", f"SVMCORE_BUNDLE={args.bundle} where it shall be used"))
    return report.end()
