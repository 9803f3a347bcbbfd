"""Pretraining and meta-training with Lightning, their recipes, and the run folders they fill."""
