"""Many labellings of the same rows, cross-validated: scores, p-values, groups of features."""
