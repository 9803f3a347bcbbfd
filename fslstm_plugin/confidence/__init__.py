"""How sure a prediction is: calibrated probabilities, prediction sets, familiarity."""
