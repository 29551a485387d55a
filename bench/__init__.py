"""The benchmark runner: problems x solvers and peers x settings, scored by one certificate. See docs/benchmarks.md."""
