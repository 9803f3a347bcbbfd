"""Files that are whole or absent, plain data, tables, and tensors in files."""
