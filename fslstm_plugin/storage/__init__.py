"""Files that are whole or absent, plain data, and tensors in files."""
