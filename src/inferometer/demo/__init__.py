"""What the demonstration runs on: held-out images of handwritten digits, a small CNN, and a study.

The CNN was trained on other images of the same collection, so its accuracy on these can be believed.
"""

from inferometer.demo.assets import DigitsFiles, extract
from inferometer.demo.study import write_study

__all__ = ["DigitsFiles", "extract", "write_study"]
