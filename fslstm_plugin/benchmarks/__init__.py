"""Speed of the plugin against the existing alternatives, with the answers compared in the same run."""
