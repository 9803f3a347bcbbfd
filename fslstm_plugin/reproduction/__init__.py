"""The paper's tables and figures: what to train and evaluate, what was published, what was measured."""
