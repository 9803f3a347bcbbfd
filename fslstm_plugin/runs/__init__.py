"""Run folders, and the trained models that come with the package."""
