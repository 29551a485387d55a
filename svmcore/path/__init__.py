"""The regularization path: every solution for every C."""
