"""The scikit-learn estimator, and what is below it: choice of the method, updates, suggestions, the model file."""
