# SPDX-License-Identifier: Apache-2.0
"""Configuration of the manual (Sphinx with MyST Markdown)."""

import re
from pathlib import Path

_version = (Path(__file__).parent.parent / "python/headrace/_version.py").read_text()
project = "headrace"
release = re.search(r'__version__ = "([^"]+)"', _version)[1]
copyright = "the headrace authors, Apache-2.0"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
myst_enable_extensions = ["deflist", "colon_fence"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = f"headrace {release}"
exclude_patterns = ["_build"]
# Formats may be pages of their own that no tree lists twice.
suppress_warnings = []
