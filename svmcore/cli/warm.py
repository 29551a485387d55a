"""Compiling ahead."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from svmcore.cli.output import DONE


def warmup(args: argparse.Namespace) -> int:
    """Compile what is named, for this machine or into a file for others."""
    from svmcore.warm import warmup as compile_ahead

    if not args.quiet:
        print("compiling, for up to a minute", file=sys.stderr)
    begin = time.perf_counter()
    compile_ahead(args.what, jobs=args.jobs, bundle=args.bundle, processor=args.processor)
    print(f"seconds      {time.perf_counter() - begin:.1f}")
    if args.bundle:
        print(f"written      {args.bundle} ({Path(args.bundle).stat().st_size / 1e6:.1f} MB)")
        print(f"next         SVMCORE_BUNDLE={args.bundle} where it shall be used")
    return DONE
