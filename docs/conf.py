"""The site, as Sphinx builds it from this folder: `make docs` calls it."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "extensions"), str(HERE.parent)]

from be_toolchain import __version__  # noqa: E402
from release.links import read_repository  # noqa: E402

project = "brainevent-toolchain"
author = "the authors of brainevent-toolchain"
version = release = __version__

extensions = [
    "benchmark_tables",
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinxcontrib.mermaid",
    "breakable_names",
    "repository_pages",
    "command_lines",
    "cpp_reference",
    "doctor_report",
    "gallery_notebooks",
    "peers_picture",
    "python_reference",
]
exclude_patterns = ["extensions", "browser", "words", "generated/notebooks"]

# Pages of the gallery run when they or their kernels change; any error in one ends the build.
nb_execution_mode = "cache"
nb_execution_cache_path = str(HERE.parent / "build" / "docs" / "notebooks")
nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_merge_streams = True

suppress_warnings = [
    "myst-nb.lexer",  # what a page of the gallery lacks while it is not executed
]

myst_enable_extensions = ["attrs_block", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4
myst_fence_as_directive = ["mermaid"]  # as GitHub draws it

autosummary_generate = False  # the pages of the reference have the entries
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the docstrings have the types, with shapes and units
napoleon_google_docstring = False
napoleon_custom_sections = ["See Also"]  # lists, which link pages too
napoleon_use_ivar = True  # a list of attributes is as short as a list of parameters
napoleon_use_rtype = False
default_role = "py:obj"
smartquotes = False  # --fix is no dash, and a quoted word may be code
add_module_names = False
cpp_index_common_prefix = ["BE::"]

html_theme = "sphinx_book_theme"
html_title = project
html_static_path = ["static", "../.venv-docs/static"]
mermaid_use_local = "mermaid/mermaid.esm.min.mjs"
mermaid_fullscreen = False
html_css_files = ["site.css"]
html_js_files = [("site.js", {"defer": "defer"})]
html_logo = html_favicon = "static/icon.svg"
html_copy_source = False
html_show_sourcelink = False
html_context = {"default_mode": "auto"}  # as the reader's system
html_theme_options = {
    "home_page_in_toc": True,
    "logo": {"text": project},
    "navbar_persistent": [],  # the sidebar has the search
    "show_navbar_depth": 0,  # groups are closed, but for the page's own
    "show_toc_level": 1,
    "extra_footer": f"<p>Version {version}, Apache License 2.0</p>",
    "use_download_button": False,
    "use_fullscreen_button": False,
}
if repository := read_repository((HERE.parent / "pyproject.toml").read_text(encoding="utf-8")):
    html_theme_options |= {"repository_url": repository, "repository_provider": "github", "path_to_docs": "docs"}
    html_theme_options |= dict.fromkeys(("use_repository_button", "use_issues_button"), True)
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

# Anchors of pages that a script makes in the browser are not in what a server sends.
linkcheck_anchors = False
linkcheck_timeout = 20
linkcheck_retries = 3
linkcheck_ignore = [r"https://cache\.example\.org", r"http://localhost"]
