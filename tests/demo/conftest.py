"""Lets tests import what trains and judges the demo model, which lies outside the package."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "scripts"))
