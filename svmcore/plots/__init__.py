"""Pictures of paths, cross-validations, machines and permutation tests."""
