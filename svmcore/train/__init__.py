"""Training: the driver, the functions that train, several classes, many columns, certificates."""
