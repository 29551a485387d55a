"""Kernel values: the matrix, its products, tiles and rows."""
