"""Speed of the plugin against the existing alternatives, with the answers compared in the same run."""

import logging

# torch.utils.benchmark would warn that no GPU was found.
logging.getLogger("torch.utils.cpp_extension").setLevel(logging.ERROR)
