"""One file per published table."""
