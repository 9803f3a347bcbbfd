"""What the plugin's speed is worth: timed against what a user has today, with the answers compared in the same run."""
