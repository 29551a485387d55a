"""Exact model selection: the cross-validated score for every C.

| file | what it is |
|---|---|
| `search` | `cv_path`: checks, paths side by side |
| `goals` | what machines learn, and what they are scored by |
| `folds`, `members`, `grams`, `progress` | rows; one fold's machine; what folds share; what a person sees |
| `curves`, `scores` | from paths to exact functions of C |
| `result` | `PathCV` |
"""

from __future__ import annotations

from svmcore.cv.result import PathCV
from svmcore.cv.search import cv_path

__all__ = ["PathCV", "cv_path"]
