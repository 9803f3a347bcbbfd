"""Tables of results for the terminal, files and papers."""
