"""The commands ``verify`` and ``convert``."""

from __future__ import annotations

import argparse
import functools
from typing import Any

from svmcore._errors import InputError
from svmcore.cli.files import check_outputs, class_weights, wanted
from svmcore.cli.output import Report, percent
from svmcore.data import read
from svmcore.models.files import is_model
from svmcore.models.files import load as load_machine


def verify(args: argparse.Namespace) -> int:
    """Recompute the certificate of a model from the data it was trained on."""
    from svmcore.models.audit import data_of
    from svmcore.models.audit import verify as audited
    from svmcore.models.solution import Solution
    from svmcore.path.result import Path

    model: Any = load_machine(args.model)
    C = args.C
    if isinstance(model, Path) and C is not None:
        model, C = model.at(C), None
    first = model.machines[0] if hasattr(model, "machines") else model
    data, weights = args.data, None
    if isinstance(first, Solution):
        data = data_of(args.data, first, wanted(args))
        if args.class_weight is not None:
            weights = class_weights(args.class_weight, data.y)
    found = audited(model, data, C=C, epsilon=args.epsilon, class_weight=weights, tol=args.tol)
    report = Report(args)
    report.facts |= {"data": args.data, "ok": found.ok}
    machines = f"{found.n_machines} machines" if found.n_machines > 1 else "one machine"
    report.add(
        "model", f"{args.model}: {found.kind}, {machines}, {found.found:,} of {found.n_support:,} support vectors found "
        "among the rows", name=args.model, kind=found.kind, machines=found.n_machines, support=found.n_support,
        found=found.found,
    )  # fmt: skip
    terms = {name: getattr(found, name) for name in ("C", "epsilon", "nu") if getattr(found, name) is not None}
    shown = [f"{name} {value:.6g}" for name, value in terms.items()]
    if found.class_C is not None and len(set(found.class_C.values())) > 1:
        own = [f"C {value:.6g} for {label}" for label, value in found.class_C.items()]
        shown = [*own, *(text for text in shown if not text.startswith("C "))]
    told = (
        f" ({' and '.join(found.inferred)} read off the coefficients: the file does not say)" if found.inferred else ""
    )
    report.add("problem", ", ".join(shown) + told, **terms, class_C=found.class_C, inferred=list(found.inferred))
    if found.certificate is not None:
        c = found.certificate
        report.add(
            "objective", f"{c.primal_objective:.8g} (dual {-c.objective:.8g})", primal=c.primal_objective, dual=-c.objective,
        )  # fmt: skip
        report.facts["certificate"] = {
            "kkt_violation": c.kkt_violation, "gap": c.gap, "relative_gap": c.relative_gap, "infeasibility": c.infeasibility,
        }  # fmt: skip
    if found.error is not None:
        word = {"classification": "wrong", "one class": "outside"}.get(found.kind)
        text = f"{percent(found.error)} of the rows" if word else f"{found.error:.4g} over the rows (root mean square)"
        report.tell(word or "off by", found.error, text)
    report.tell("verdict", str(found))
    return report.end(whole=found.ok)


def convert(args: argparse.Namespace) -> int:
    """Write a model or a data set in another format."""
    from svmcore.data.writing import data_writer

    check_outputs(args)
    report = Report(args)
    if is_model(args.source):
        model: Any = load_machine(args.source)
        to = args.to or ("npz" if args.output.endswith(".npz") else "libsvm")
        if (to == "libsvm" and (hasattr(model, "_data") or hasattr(model, "noise"))) or hasattr(model, "_study"):
            raise InputError(f"{args.source} holds no single machine; a model of LIBSVM is one")
        report.write(args.output, model.save if to == "npz" else functools.partial(model.save, format="libsvm"))
        what = f"a model in {'svmcore' if to == 'npz' else 'LIBSVM'}'s format"
    else:
        if args.to is not None:
            raise InputError("--to is for models; of data the end of the name says the format")
        table = read(args.source, wanted(args))
        if table.known is not None:
            raise InputError(f"{args.source}: some rows have no label; remove them, or leave the column out")
        names = None if table.names is None else list(table.names)
        report.write(args.output, data_writer(args.output, table.X, table.y, names, table.label_name or "label"))
        what = f"{table.X.shape[0]:,} points, {table.X.shape[1]:,} features"
    report.facts["source"] = args.source
    report.tell("written", report.written, f"{report.written[0]}: {what}")
    return report.end()
