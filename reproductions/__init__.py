"""The reproductions: what each trains and evaluates, what was published, and what was measured; data, no code."""
