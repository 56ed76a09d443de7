"""Settings of the site for Sphinx. scripts/make_site.py prepares the pages and starts Sphinx (make site)."""

project = "Sluice"
copyright = "the authors of Sluice, Apache License 2.0"  # noqa: A001  # Sphinx has this name
extensions = ["myst_parser"]
root_doc = "README"
html_theme = "furo"
html_title = "Sluice"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
# Anchors of headings, as on forges.
myst_heading_anchors = 4
# Most indented blocks are commands or configuration. The specification has languages of its own (frame, message).
highlight_language = "text"
suppress_warnings = ["misc.highlighting_failure"]
