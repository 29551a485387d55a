"""Tests of scikit-learn's other modules that use its support vector machines, with the classes of this library in place.

docs/sklearn.md lists the tests that do not hold, with the reasons. A listed test that passes is an error.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import sklearn
from sklearn.utils.fixes import parse_version

pytestmark = [pytest.mark.once, pytest.mark.slow]
if parse_version(sklearn.__version__) < parse_version("1.9"):
    pytest.skip("the page lists tests of scikit-learn 1.9", allow_module_level=True)

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "sklearn.md"
LISTED = re.findall(r"^\| `(\S*\.py)::(test_[^`]*)` \| .* \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
MODULES = [
    "tests/test_multiclass.py", "tests/test_calibration.py", "tests/test_multioutput.py", "tests/test_pipeline.py",
    "ensemble/tests/test_bagging.py", "ensemble/tests/test_voting.py", "ensemble/tests/test_stacking.py",
    "ensemble/tests/test_weight_boosting.py", "ensemble/tests/test_common.py", "linear_model/tests/test_common.py",
    "model_selection/tests/test_search.py", "model_selection/tests/test_validation.py",
    "model_selection/tests/test_successive_halving.py", "model_selection/tests/test_classification_threshold.py",
    "feature_selection/tests/test_from_model.py", "feature_selection/tests/test_rfe.py",
    "semi_supervised/tests/test_self_training.py",
]  # fmt: skip


@pytest.mark.parametrize("module", MODULES)
def test_tests_of_other_modules_hold(module, tmp_path):
    out = tmp_path / "found.json"
    command = [sys.executable, str(HERE / "our_classes.py"), module, str(out)]
    environment = {**os.environ, "PYTHONPATH": str(HERE.parent), "SVMCORE_QUIET": "1"}
    said = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert out.exists(), said.stdout + said.stderr
    found = json.loads(out.read_text(encoding="utf-8"))
    assert found, said.stdout
    failed = sorted(name for name, outcome in found.items() if outcome == "failed")
    assert failed == sorted(name for where, name in LISTED if where == module)


def test_every_module_of_the_list_is_run():
    assert LISTED
    assert {module for module, _ in LISTED} <= set(MODULES)
