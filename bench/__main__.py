"""python -m bench list | run NAME... | report FILE... | readme"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from pathlib import Path

from bench.contest import Context
from bench.data import ROOT
from bench.environment import environment
from bench.peers import peers, svmpath
from bench.peers.tuners import tuners
from bench.results import Results, read
from bench.suites import SUITES

CHECKOUT = (ROOT / "pyproject.toml").is_file()
FOLDER = ROOT / "bench" / "results" if CHECKOUT else Path("svmcore-bench")


def list_everything() -> int:
    """Print the suites and the peers."""
    print("suites (python -m bench run NAME...; `all` is every one of them):")
    for suite in SUITES.values():
        print(f"  {suite.name:10s} {suite.summary} (at most {suite.minutes:g} min)")
    print("peers:")
    for name, why in {
        **{p.name: p.missing() for p in peers()},
        **{t.name: t.missing() for t in tuners()},
        svmpath.NAME: svmpath.missing(),
    }.items():
        print(f"  {name:16s} {why or 'installed'}")
    return 0


def run(options: argparse.Namespace) -> int:
    """Run some suites into one results file."""
    names = list(SUITES) if "all" in options.names else list(dict.fromkeys(options.names))
    unknown = [name for name in names if name not in SUITES]
    if unknown:
        print(f"no suite {unknown[0]!r}; there are {', '.join(SUITES)}, and all", file=sys.stderr)
        return 2
    file = options.out or FOLDER / f"{time.strftime('%Y%m%d-%H%M%S')}.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    results = Results(file)
    said = {
        "--minutes": [f"{options.minutes:g}"] if options.minutes else [],
        "--only": options.only or [],
        "--problems": options.problems or [],
    }
    words = [w for k, v in said.items() if v for w in (k, *v)] + ["--full"] * options.full + ["--tiny"] * options.tiny
    command = " ".join(["python -m bench run", *options.names, *words])
    results.add({**environment(), "command": command})
    share = options.minutes / sum(SUITES[name].minutes for name in names) if options.minutes else 1.0
    failed = []
    for name in names:
        suite = SUITES[name]
        print(f"{name}: {suite.summary}", flush=True)
        started = time.perf_counter()
        deadline = math.inf if options.full and not options.minutes else started + 60.0 * share * suite.minutes
        context = Context(results, options.only or (), options.problems or (), deadline, options.full, options.tiny)
        try:
            suite.run(context)
        except AssertionError as error:
            failed.append(name)
            print(f"  FAILED: {error}")
        minutes = (time.perf_counter() - started) / 60.0
        results.add({"kind": "suite", "suite": name, "minutes": minutes, "failed": name in failed})
        print(f"  {minutes:.1f} min", flush=True)
    print(f"results: {file}")
    return 1 if failed else 0


def newest() -> list[Path]:
    """The last results file written here."""
    return sorted(FOLDER.glob("*.jsonl"), key=lambda file: file.stat().st_mtime)[-1:]


def report(options: argparse.Namespace) -> int:
    """Write the report, or compare two runs."""
    from bench.report import compare, write

    if options.compare:
        text, changed = compare(read(options.compare[:1]), read(options.compare[1:]))
        print(text)
        return int(changed)
    files = options.files or newest()
    if not files:
        print("no results yet; run python -m bench run fit", file=sys.stderr)
        return 2
    for file in write(read(files), options.out or files[-1].with_suffix("")):
        print(file)
    return 0


def readme(options: argparse.Namespace) -> int:
    """Rewrite, or check, the generated parts of README.md and docs/benchmarks.md."""
    from bench.report import published

    return published(options.files or None, check=options.check)


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="Benchmarks; see docs/benchmarks.md.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="suites and peers")
    command = commands.add_parser("run", help="run suites; results go to a JSON lines file")
    command.add_argument("names", nargs="+", metavar="NAME", help="suites, or all")
    command.add_argument("--data", type=Path, help="folder of data sets (default: SVMCORE_DATA, else ../shared/data)")
    command.add_argument("--out", type=Path, help="results file")
    command.add_argument("--minutes", type=float, help="time for all of it, shared out; what does not fit is left out")
    command.add_argument("--full", action="store_true", help="the papers' tables with the rows that take many minutes")
    command.add_argument("--tiny", action="store_true", help="the least that has every kind of row, to try the way")
    command.add_argument("--only", nargs="+", metavar="WORD", help="only solvers whose name holds a word")
    command.add_argument(
        "--problems", nargs="+", metavar="WORD", help="only problems (of tables: modules) whose name holds a word"
    )
    command = commands.add_parser("report", help="write a report of results, or compare two runs")
    command.add_argument("files", nargs="*", type=Path, help="results files (default: the newest)")
    command.add_argument("--compare", nargs=2, type=Path, metavar=("OLD", "NEW"), help="what became slower or changed")
    command.add_argument("--out", type=Path, help="folder of the report")
    command = commands.add_parser("readme", help="regenerate the tables of README.md and docs/benchmarks.md")
    command.add_argument("files", nargs="*", type=Path, help="results to publish (default: those published last)")
    command.add_argument("--check", action="store_true", help="only say whether they are up to date")
    options = parser.parse_args(arguments)
    if getattr(options, "data", None):
        os.environ["SVMCORE_DATA"] = str(options.data)
    return {"list": lambda _: list_everything(), "run": run, "report": report, "readme": readme}[options.command](
        options
    )


if __name__ == "__main__":
    sys.exit(main())
