"""How Sphinx builds the documentation."""

import pairbus

project = "pairbus"
author = "The pairbus authors"
copyright = "The pairbus authors"  # noqa: A001 (Sphinx's name for it)
version = release = pairbus.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinxcontrib.mermaid"]
html_theme = "furo"
html_title = f"pairbus {release}"
myst_enable_extensions = ["colon_fence"]
myst_fence_as_directive = ["mermaid"]
myst_heading_anchors = 3
autodoc_member_order = "bysource"
autodoc_typehints = "description"
