"""The benchmark runner: its judge, its arithmetic, its reports, and a whole small run."""

from __future__ import annotations

import json
import re
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import svmcore
from bench import clock, data
from bench.__main__ import main
from bench.contest import Context, at_equal_gap, contest
from bench.environment import environment
from bench.objective import Answer, feasible, gap_target, meets, score
from bench.peers import DEFAULT, ScikitLearn, by_name, peers
from bench.peers.base import Solver
from bench.problems import Problem, reference
from bench.report import compare, fast, write
from bench.report.page import Grid, Part, Picture, Section, markdown, pictures
from bench.report.published import readme_block
from bench.report.sections import gpu_grid, threads_grid
from bench.report.summary import cases, exponent, profile, standings
from bench.results import Results, geometric_mean, read
from bench.suites import SUITES, bilevel, fit, gpu, intel, processors
from bench.tables.spirals import costs, rules

pytestmark = pytest.mark.once

SMALL = Problem("clusters-200-20")


def record(solver: str, cpu: list[float], mode: str = "gap", met: bool = True, objective: float = -1.0) -> dict:
    measured = {
        "objective": objective,
        "primal_objective": -objective,
        "relative_gap": 1e-4,
        "kkt_violation": 1e-3,
        "n_sv": 10,
    }
    return {
        "kind": "row", "suite": "fit", "group": "a class", "problem": {"name": "p", "n": 100, "d": 2, "C": 1.0},
        "solver": solver, "mode": mode, "tol": 1e-3, "threads": 1, "asked": 1e-3, "met": met, "cpu": cpu,
        "wall": cpu, "score": measured,
    }  # fmt: skip


# ---- the whole thing ---------------------------------------------------------------------------------------------------


@pytest.mark.ci
def test_smoke_passes_and_reports(tmp_path, capsys):
    file = tmp_path / "smoke.jsonl"
    assert main(["run", "smoke", "--out", str(file)]) == 0
    results = read([file])
    assert results.environment["cores"] >= 1
    assert {row["solver"] for row in results.kind("row")} >= {"svmcore", "scikit-learn"}
    assert main(["report", str(file), "--out", str(tmp_path / "report")]) == 0
    text = (tmp_path / "report" / "report.md").read_text()
    assert "faster than scikit-learn" in text or "slower than" in text
    assert main(["report", "--compare", str(file), str(file)]) == 0
    assert "0 slower beyond noise" in capsys.readouterr().out


def test_measurements_need_no_git(monkeypatch):
    """A machine without git has a commit that is unknown, and all else."""
    monkeypatch.setenv("PATH", "")
    found = environment()
    assert (found["commit"], found["dirty"]) == ("unknown", False)
    assert found["packages"]["numpy"] == np.__version__


def test_list_names_suites_and_peers(capsys):
    assert main(["list"]) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in [*SUITES, *(peer.name for peer in peers())])


def test_unknown_suite_is_refused(capsys):
    assert main(["run", "nonsense"]) == 2
    assert "nonsense" in capsys.readouterr().err


def test_published_tables_are_not_stale():
    assert main(["readme", "--check"]) == 0


# ---- the judge ---------------------------------------------------------------------------------------------------------


@pytest.mark.compiled
def test_the_judge_agrees_with_the_solution():
    solution = svmcore.train_svc(SMALL.X, SMALL.y, SMALL.C, **SMALL.keywords())
    measured = score(SMALL, DEFAULT.answer(SMALL, solution))
    assert measured["kkt_violation"] == pytest.approx(solution.kkt_violation, rel=1e-6)
    assert measured["objective"] == pytest.approx(solution.objective, rel=1e-12)
    assert meets(measured, 1e-3, gap_target(SMALL, 1e-3))
    assert not meets(measured, 1e-9, 1e-9)


@pytest.mark.compiled
def test_single_precision_is_moved_onto_the_constraints():
    solution = svmcore.train_svc(SMALL.X, SMALL.y, SMALL.C, **SMALL.keywords())
    exact = DEFAULT.answer(SMALL, solution).coef
    rounded = exact.astype(np.float32).astype(float) * (1 - 1e-7)
    repaired = feasible(SMALL, rounded)
    assert np.abs(repaired - exact).max() < 1e-6
    assert np.all((repaired * SMALL.y >= 0) & (np.abs(repaired) <= SMALL.C))
    assert np.array_equal(np.abs(repaired) == SMALL.C, np.abs(exact) == SMALL.C)
    assert abs(repaired.sum()) <= 1e-13 * np.abs(repaired).sum()


@pytest.mark.compiled
def test_a_weight_vector_is_held_against_the_bound():
    problem = Problem("clusters-200-20", kernel="linear", fit_intercept=False)
    solution = svmcore.train_svc(problem.X, problem.y, problem.C, tol=1e-8, **problem.keywords())
    w = solution.dual_coef @ problem.X[solution.support]
    assert score(problem, Answer(None, 0.0, w=w))["relative_gap"] == pytest.approx(0.0, abs=1e-6)
    assert score(problem, Answer(None, 0.0, w=0.5 * w))["relative_gap"] > 1e-2


@pytest.mark.ci
@pytest.mark.compiled
def test_equal_gap_is_reached_or_given_up():
    results = Results()
    rows = contest(Context(results, say=lambda _: None), "fit", SMALL, [DEFAULT, ScikitLearn()], time_for_it=0.01)
    for row in rows:
        if row["mode"] == "gap":
            assert row["met"]
            assert row["score"]["relative_gap"] <= row["gap_target"]
    assert reference(SMALL) <= min(row["score"]["primal_objective"] for row in rows)

    class Hopeless:
        score = {"relative_gap": 1.0}  # noqa: RUF012
        solver, problem, asked, threads = DEFAULT, SMALL, 1e-3, 1

    assert at_equal_gap(Hopeless(), 1e-300) is None


def test_problems_can_be_chosen_by_name():
    results, quiet = Results(), {"say": lambda _: None}
    options = {"equal_gap": False, "time_for_it": 0.01}
    assert not contest(Context(results, problems=["no such"], **quiet), "fit", SMALL, [DEFAULT], **options)
    assert contest(Context(results, problems=["no such", SMALL.data], **quiet), "fit", SMALL, [DEFAULT], **options)


def test_a_peer_that_is_not_installed_is_skipped_with_its_name():
    class Absent(Solver):
        name = "Absent"
        package = "a-package-that-nobody-has"

    results, said = Results(), []
    contest(Context(results, say=said.append), "fit", SMALL, [Absent()], equal_gap=False)
    assert results.kind("skip")[0]["solver"] == "Absent"
    assert "not installed" in said[0]


@pytest.mark.compiled
def test_a_peer_that_fails_is_a_result():
    class Broken(ScikitLearn):
        name = "Broken"

        def prepare(self, problem, tol, threads):
            raise RuntimeError("no")

    results = Results()
    rows = contest(
        Context(results, say=lambda _: None), "fit", SMALL, [DEFAULT, Broken()], equal_gap=False, time_for_it=0.01
    )
    assert [row["solver"] for row in rows] == ["svmcore"]
    assert "RuntimeError" in results.kind("skip")[0]["why"]


# ---- data --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["monk1", "monk2", "monk3", "noisy_spirals", "two_spirals"])
def test_built_in_sets_are_the_published_ones(name, data_set):
    X, y = data_set(name)
    ours = data.load(name)
    if ours.test is not None:
        assert len(ours.y) + len(ours.test[1]) == len(y)
        assert {tuple(x) for x in np.vstack([ours.X, ours.test[0]])} == {tuple(x) for x in X}
    elif name.startswith("monk"):
        assert np.array_equal(ours.y, y)
    else:
        assert np.array_equal(ours.X, X)
        assert np.array_equal(ours.y, y)


@pytest.mark.parametrize("name", ["clusters-300-20", "noisy-300-5", "mixture-300-8", "onehot-300-120", "waves-300-4"])
def test_generated_sets_are_what_their_names_say(name):
    made = data.GENERATED[name.split("-")[0]](*map(int, name.split("-")[1:]))
    assert made.X.shape == tuple(map(int, name.split("-")[1:]))
    if not name.startswith("waves"):
        assert set(np.unique(made.y)) == {-1.0, 1.0}


def test_a_missing_set_says_so(monkeypatch, tmp_path):
    monkeypatch.setenv("SVMCORE_DATA", str(tmp_path))
    assert "not in the data folder" in data.missing("a1a")
    assert data.missing("clusters-100-2") == ""


@pytest.mark.compiled
def test_the_gpu_suite_measures_by_the_data_of_its_paper():
    X, y = gpu.hidden_centres(300, 10)
    assert (X.shape, set(y)) == ((300, 10), {0, 1})
    assert np.abs(X.mean(axis=0)).max() < 1e-12
    distances = np.square(X[:, None] - X[None]).sum(axis=-1)[np.triu_indices(300, 1)]
    low, high = np.quantile(distances, [0.1, 0.9])
    assert 2.0 / high < gpu.width(X) < 2.0 / low


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """The least that has every kind of row of the suites with protocols of others."""
    pytest.importorskip("sklearn")
    runs = {"gpu": "10 columns", "intel": "twodplanes", "bilevel": "heart", "gamma": "monk1", "first": "iris"}
    files = {name: tmp_path_factory.mktemp("bench") / f"{name}.jsonl" for name in runs}
    few = ["--tiny", "--only", "scikit", "LIBLINEAR"]
    for name, word in runs.items():
        assert main(["run", name, *few, "--problems", word, "--out", str(files[name])]) == 0
    return {name: read([file]) for name, file in files.items()}


@pytest.mark.ci
@pytest.mark.compiled
def test_others_protocols_have_their_rows(tiny):
    found = {name: cases(results, name) for name, results in tiny.items()}
    (tuned,) = found["gpu"]
    ours, *others = tuned.rows.values()
    assert ours["score"]["best_error"] < 0.5
    assert ours["met"]
    assert {row["wall"][0] for row in others if "printed" in row["solver"]} == set(gpu.PRINTED["10 columns"].values())
    assert sum("estimated from 3 of 500 fits" in row["solver"] for row in others) == 1
    assert [row[0] for row in gpu_grid(found["gpu"]).rows] == list(tuned.rows)
    assert len(found["intel"]) == 6
    assert all(case.rows["scikit-learn"]["met"] for case in found["intel"])
    assert set(found["first"][0].rows) == {"svmcore", "scikit-learn"}


@pytest.mark.ci
@pytest.mark.compiled
def test_no_grid_has_less_error_than_every_c(tiny, data_set):
    data_set("heart")
    (case,) = cases(tiny["bilevel"], "bilevel")
    errors = {name: row["score"]["best_error"] for name, row in case.rows.items()}
    assert min(errors.values()) == errors[bilevel.OURS]
    assert set(errors) == {bilevel.OURS, *bilevel.GRIDS}


@pytest.mark.ci
@pytest.mark.compiled
def test_ways_to_choose_gamma_are_judged_by_other_rows(tiny):
    (case,) = cases(tiny["gamma"], "gamma")
    assert len(case.rows) == 4
    assert all(0.0 <= row["score"]["error"] < 0.6 and row["score"]["log_loss"] > 0.0 for row in case.rows.values())


def test_the_made_regressions_are_those_of_their_names():
    rng = np.random.default_rng(0)
    X, y = intel.fried(4000, rng)
    rest = y - 10.0 * np.sin(np.pi * X[:, 0] * X[:, 1]) - 20.0 * (X[:, 2] - 0.5) ** 2 - 10.0 * X[:, 3] - 5.0 * X[:, 4]
    assert rest.std() == pytest.approx(1.0, abs=0.05)
    X, y = intel.twodplanes(4000, rng)
    assert set(np.unique(X[:, 0])) == {-1.0, 1.0}
    assert set(np.unique(X[:, 1:])) == {-1.0, 0.0, 1.0}
    assert y[X[:, 0] > 0].mean() == pytest.approx(3.0, abs=0.3)
    assert y[X[:, 0] < 0].mean() == pytest.approx(-3.0, abs=0.3)


@pytest.mark.ci
@pytest.mark.compiled
def test_narrower_vectors_are_timed_in_processes_of_their_own(tmp_path):
    file = tmp_path / "p.jsonl"
    assert main(["run", "processors", "--tiny", "--out", str(file)]) == 0
    found = cases(read([file]), "processors")
    assert all(len(case.rows) == 1 + len(processors.NARROWER) for case in found)


def test_liblinear_has_its_own_problem():
    """A feature of ones in place of the intercept, in a row of its own beside every row with an intercept."""
    names = {case.problem.data for case in fit.CASES if case.problem.kernel == "linear"}
    for case in fit.CASES:
        if case.problem.kernel == "linear" and case.problem.fit_intercept:
            assert case.problem.data + data.ONES in names
    own, plain = data.load("onehot-300-120+1"), data.load("onehot-300-120")
    assert own.X.shape[1] == plain.X.shape[1] + 1
    assert np.all(own.X[:, -1].toarray() == 1.0)
    assert by_name("LIBLINEAR").refuses(Problem("clusters-200-20+1", kernel="linear", fit_intercept=False)) == ""


# ---- clocks and arithmetic ---------------------------------------------------------------------------------------------


def test_contestants_alternate():
    order = []
    works = {name: lambda name=name: order.append(name) for name in "ab"}
    times, _ = clock.alternate(works, 3)
    assert "".join(order) == "ababab"
    assert len(times["a"].cpu) == 3


def test_rounds_fit_the_time():
    assert clock.rounds_for(1.0, 0.1) == 10
    assert clock.rounds_for(1.0, 10.0) == 3
    assert clock.rounds_for(1.0, 0.0) == 15


def test_standings_compare_only_what_met_the_target():
    results = Results(records=[record("svmcore", [1.0]), record("A", [3.0]), record("B", [9.0], met=False)])
    table = {s.solver: s for s in standings(cases(results, "fit", "gap"))}
    assert table["A"].mean == pytest.approx(3.0)
    assert table["B"].missed == 1
    assert not table["B"].ratios
    assert profile(cases(results, "fit", "gap"))["B"][0] == []


def test_exponents_and_means():
    assert exponent([1, 2, 4, 8], [1.0, 4.0, 16.0, 64.0]) == pytest.approx(2.0)
    assert geometric_mean([1.0, 4.0]) == pytest.approx(2.0)


def test_results_survive_the_file(tmp_path):
    results = Results(tmp_path / "r.jsonl")
    results.add({"kind": "row", "value": np.float64(1.5), "list": np.arange(2)})
    assert read([tmp_path / "r.jsonl"]).records == [{"kind": "row", "value": 1.5, "list": [0, 1], "from": {}}]


# ---- reports -----------------------------------------------------------------------------------------------------------


def peers_rows(factor: float) -> list[dict]:
    return [record(f"peer {k}", [factor]) for k in range(6)]


def test_comparison_sees_what_became_slower_and_not_the_machine():
    old = Results(records=[record("svmcore", [1.0, 1.02]), *peers_rows(1.0)])
    busy = Results(records=[record("svmcore", [1.5, 1.52]), *peers_rows(1.5)])
    slower = Results(records=[record("svmcore", [1.5, 1.52]), *peers_rows(1.0)])
    assert compare(old, busy)[1] is False
    text, changed = compare(old, slower)
    assert changed
    assert "1 slower beyond noise" in text


def test_comparison_sees_changed_answers():
    old = Results(records=[record("svmcore", [1.0])])
    assert compare(old, Results(records=[record("svmcore", [1.0], objective=-1.1)]))[1]
    assert compare(old, Results(records=[record("svmcore", [1.0], met=False)]))[1]
    assert not compare(old, Results(records=[record("svmcore", [1.0], objective=-1.00001)]))[1]


def test_report_answers_in_its_title(tmp_path):
    environment = {
        "kind": "environment", "when": "today", "svmcore": "0", "commit": "abc", "dirty": False, "cpu": "a cpu", "cores": 2,
        "vectors": "avx2", "system": "Linux", "python": "3.12", "packages": {}, "load": [1.0], "command": "run",
    }  # fmt: skip
    rows = [
        record(name, [value], mode)
        for mode in ("gap", "tol")
        for name, value in [("svmcore", 1.0), ("scikit-learn", 3.0)]
    ]
    results = read([written(tmp_path / "r.jsonl", [environment, *rows])])
    files = write(results, tmp_path)
    assert files[0].read_text().startswith("# svmcore fits 3.0 times faster than scikit-learn")
    assert "a class | 1 | 3.0x" in readme_block(results)


@pytest.mark.ci
def test_published_results_have_a_report(tmp_path):
    """They keep less of the circumstances than a run does."""
    published = read([Path(__file__).parents[1] / "bench" / "published.jsonl"])
    text = write(published, tmp_path)[0].read_text()
    for env in published.kind("environment"):
        assert f"svmcore {env['svmcore']} at {env['commit']}," in text


def run_of(commit: str, *rows: dict, when: str = "2026-11-20 01:00 UTC", load: float = 1.0) -> list[dict]:
    env = {
        "kind": "environment", "when": when, "svmcore": "0", "commit": commit, "cpu": "a cpu", "cores": 2,
        "vectors": "avx2", "python": "3.12", "packages": {}, "load": [load], "command": f"run by {commit}",
    }  # fmt: skip
    return [env, *rows]


def written(file: Path, records: list[dict]) -> Path:
    file.write_text("".join(json.dumps(each) + "\n" for each in records))
    return file


def test_a_later_run_replaces_the_whole_case(tmp_path, monkeypatch):
    """Everybody's row of a case is of one run; what no figure is left of is not named."""
    old = run_of("old", record("svmcore", [2.0]), record("A", [6.0]), record("B", [8.0]))
    skip = {"kind": "skip", "suite": "fit", "problem": "p", "solver": "B", "why": "not installed"}
    new = run_of("new", record("svmcore", [1.0]), skip, record("A", [3.0]))
    other = run_of("other", {**record("svmcore", [1.0]), "group": "another class"})
    files = [written(tmp_path / f"{k}.jsonl", records) for k, records in enumerate([old, other, new])]
    module = import_module("bench.report.published")  # its function has the same name
    monkeypatch.setattr(module, "PUBLISHED", tmp_path / "published.jsonl")
    module.publish(read(files))
    again = read([tmp_path / "published.jsonl"])
    assert [env["commit"] for env in again.kind("environment")] == ["other", "new"]
    assert {(row["solver"], row["from"]["commit"]) for row in again.kind("row")} == {
        ("svmcore", "other"), ("svmcore", "new"), ("A", "new"),
    }  # fmt: skip


def test_what_is_lost_is_listed_and_bold(tmp_path):
    rows = [record("svmcore", [1.0]), record("scikit-learn", [0.5]), record("A", [3.0]), record("B", [0.1], met=False)]
    results = read([written(tmp_path / "r.jsonl", run_of("abc", *rows))])
    share, grid = fast.lost_grid(results)
    assert share == "1 of 2"
    assert [row[2] for row in grid.rows] == ["scikit-learn"]
    assert len(grid.columns) == len(grid.rows[0])
    assert "**0.5x**" in readme_block(results)
    assert "1 of 2 comparisons are lost" in fast.page(results)
    assert "B 1" in fast.missed(results)


def test_figures_say_what_speaks_against_them():
    _, day = fast.release()
    (new,), (old,), (busy,) = (
        run_of("a", when=f"{day} 23:00 UTC"), run_of("b", when="2020-01-01 00:00 UTC"), run_of("c", when=day, load=9.0),
    )  # fmt: skip
    assert "older" not in fast.origin([new])
    assert "busy" not in fast.origin([new])
    assert "older than" in fast.origin([old])
    assert "busy" in fast.origin([busy])


@pytest.mark.ci
@pytest.mark.compiled
def test_others_protocols_have_their_tables(tiny):
    made = {"intel": fast.intel_grid, "bilevel": fast.bilevel_grid, "gamma": fast.gamma_grid}
    grids = {name: make(cases(tiny[name], name)) for name, make in made.items()}
    assert len(grids["intel"].rows) == 6
    assert [row[0] for row in grids["gamma"].rows][:2] == ["gamma search, every C", "gamma = scale, every C"]
    assert grids["bilevel"].columns[2:] == [bilevel.OURS, *bilevel.GRIDS]
    for results in tiny.values():
        assert "](fast-" in fast.page(results) or not cases(results, "gpu")
    assert "Not measured" in fast.gamma_block(Results())
    assert "times what the draws do" in fast.gamma_verdict(cases(tiny["gamma"], "gamma"))
    assert fast.gamma_block(tiny["gamma"]).count("|") > 20


def test_a_report_is_markdown_with_its_pictures():
    grid = Grid(["a|b", "c"], [["x", "1"]])
    assert grid.markdown().splitlines()[0] == "| a\\|b | c |"
    inner = Part("inner", [Picture("one", "a line", b"png")])
    sections = [Section("first", ["words", grid, inner]), Section("second", [Picture("two", "a bar", b"png")])]
    assert [picture.name for picture in pictures(sections)] == ["one", "two"]
    text = markdown("title", "lead", sections)
    assert re.findall(r"^(?:#.*|\*\*.*|!.*|words|lead)$", text, re.MULTILINE) == [
        "# title", "lead", "## first", "words", "**inner**", "![a line](one.png)", "## second", "![a bar](two.png)",
    ]  # fmt: skip


# ---- tables ------------------------------------------------------------------------------------------------------------


@pytest.mark.compiled
def test_the_order_of_the_working_set_rules_on_spirals():
    table = rules()
    iterations = {row[0]: row[2] for row in table.rows}
    assert iterations["second"] < iterations["mvp"] < iterations["platt"] < iterations["simplified"]
    converged, rising = (table.columns.index(name) for name in ("converged", "rising steps"))
    assert all(row[converged] == "yes" and row[rising] == 0 for row in table.rows)
    counts = {row[0]: row[2] for row in costs().rows}
    assert counts[5.0] == counts[10.0]
    assert counts[0.001] == 150


@pytest.mark.compiled
def test_every_solver_is_found_by_its_name():
    assert all(by_name(solver.name).name == solver.name for solver in [DEFAULT, *peers()])
    with pytest.raises(KeyError):
        by_name("nobody")


def test_two_threads_and_kernel_values_are_recorded(monkeypatch):
    monkeypatch.setattr(fit, "_SECONDS", 0.0)
    context = Context(Results(), say=lambda _: None)
    fit.on_threads(context, fit.Case("a class", Problem("clusters-100-5")))
    (record,) = context.results.kind("threads", "fit")
    assert len(record["wall"]["1"]) == len(record["wall"]["2"]) == 3
    solution = svmcore.train_svc(*data.load("clusters-100-5")[:2], 1.0, gamma=0.2)
    assert record["score"]["n_kernel_evals"] == solution.n_kernel_evals
    assert record["score"]["certificate_evals"] == solution.stats["certificate_evals"]
    known = {**record, "wall": {"1": [0.3, 0.2], "2": [0.1, 0.4]}}
    known["score"] = {"n_sv": 50, "n_kernel_evals": 7500, "certificate_evals": 500}
    (row,) = threads_grid(Results(records=[known])).rows
    assert row[2:] == ["50", "1.50", "0.10", "200 ms", "100 ms", "2.0x"]
