"""Two runs against each other: what became slower or faster beyond noise, and whether answers changed.

Noise is what the repeats themselves show, and at least `_FLOOR`. The drift of the machine between the runs is taken from
the peers, whose versions are the same in both: their common factor is divided out.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bench.results import Results, seconds, spread

_FLOOR = 0.10
_CLEAR = 2.0  # times the noise
_LEAST_PEERS = 5  # rows from which a drift is believed

Key = tuple[Any, ...]


def _rows(results: Results) -> dict[Key, dict[str, Any]]:
    return {
        (
            r["suite"],
            r["problem"]["name"],
            r["solver"],
            r["mode"],
            r["tol"],
            r["threads"],
            r.get("points"),
            r["group"],
        ): r
        for r in results.kind("row")
    }


def _is_ours(row: dict[str, Any]) -> bool:
    return bool(row["solver"].startswith("svmcore"))


def drift(old: dict[Key, Any], new: dict[Key, Any]) -> float:
    """The common factor of the peers' times, 1 where there are too few."""
    factors = [seconds(new[key]) / seconds(row) for key, row in old.items() if key in new and not _is_ours(row)]
    return float(np.median(factors)) if len(factors) >= _LEAST_PEERS else 1.0


def noise(old: dict[str, Any], new: dict[str, Any]) -> float:
    """Relative noise of a comparison, from the spread of both sides."""
    return float(max(_FLOOR, spread(old), spread(new)))


def answer_changed(old: dict[str, Any], new: dict[str, Any]) -> str:
    """In which way an answer is not the one it was; empty when it is."""
    a, b = old["score"], new["score"]
    if old["met"] and not new["met"]:
        return "meets its target no longer"
    if a.get("objective") is None or b.get("objective") is None:
        return ""
    allowed = sum(max(s["relative_gap"], 1e-12) * abs(s["primal_objective"]) for s in (a, b))
    if abs(a["objective"] - b["objective"]) > allowed:
        return f"objective {a['objective']:.9g} became {b['objective']:.9g}: further apart than both gaps allow"
    return ""


def compare(old_results: Results, new_results: Results) -> tuple[str, bool]:
    """The comparison as text, and whether anything of ours became slower or changed its answer."""
    old, new = _rows(old_results), _rows(new_results)
    common = [key for key in old if key in new and _is_ours(old[key])]
    factor = drift(old, new)
    slower, faster, changed = [], [], []
    for key in common:
        ratio = seconds(new[key]) / seconds(old[key]) / factor
        width = noise(old[key], new[key])
        group = f" of {key[7]}" if key[7] else ""
        what = f"{key[0]}: {key[1]}{group}, {key[2]}, tol {key[4]:g}, {key[5]} thread(s)"
        line = f"  {ratio:5.2f}x  {what} (noise {100 * width:.0f} %)"
        if ratio > 1.0 + _CLEAR * width:
            slower.append((ratio, line))
        elif ratio < 1.0 / (1.0 + _CLEAR * width):
            faster.append((ratio, line))
        if change := answer_changed(old[key], new[key]):
            changed.append(f"  {what}: {change}")
    lines = [
        f"{len(common)} rows of ours in both runs; machine drift by the peers {factor:.2f}x, divided out",
        f"{len(slower)} slower beyond noise" + (":" if slower else ""),
        *(line for _, line in sorted(slower, reverse=True)),
        f"{len(faster)} faster beyond noise" + (":" if faster else ""),
        *(line for _, line in sorted(faster)),
        f"{len(changed)} answers changed" + (":" if changed else ""),
        *changed,
    ]
    return "\n".join(lines), bool(slower or changed)
