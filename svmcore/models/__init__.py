"""What training returns: machines that predict, are saved, and change by single points."""
