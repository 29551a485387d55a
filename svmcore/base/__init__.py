"""What any room may use: threads, linear programs, arrays of users, files that appear whole, tables of notebooks."""
