"""Search finds, code copies, dark mode is dark, and every page fits a laptop and a phone."""

from __future__ import annotations

import json
import re

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from benchmarks.gallery import PAGES

from .conftest import DESKTOP, PHONE, ROOT, SITE

NAMES = sorted(path.relative_to(SITE).as_posix() for path in SITE.rglob("*.html") if "_static" not in path.parts)
PICTURES = ROOT / "build" / "docs" / "pictures"
SHOWN = (
    "index.html",
    "tutorial-cpp.html",
    "errors.html",
    "gallery/index.html",
    "gallery/histogram.html",
    "reference/commands.html",
    "reference/cpp.html",
    "reference/python.html",
    "reference/python/load-cpp.html",
    "security.html",
)
"""Pages whose pictures are kept, to be looked at."""

CUT = """() => {
  const right = (document.querySelector('article') || document.body).getBoundingClientRect().right + 1
  const scrolls = each => ['auto', 'scroll'].includes(getComputedStyle(each).overflowX)
  return [...document.querySelectorAll('article :is(table, th, td, img, svg, p, li, dt, dd, pre, figure)')]
    .filter(each => each.getClientRects().length && !each.parentElement.closest('pre'))
    .filter(each => each.getBoundingClientRect().right > right
      || each.scrollWidth > each.clientWidth + 1 && each.clientWidth && !scrolls(each))
    .map(each => each.outerHTML.slice(0, 120))
}"""
"""The elements of a page that stick out of its column, or hide a part of themselves. What is in a block may scroll."""


SEARCHES = {
    "cupy": ("from-cupy", "cupy"),
    "undefined symbol": ("troubleshooting", "undefined symbol"),
    "illegal memory access": ("troubleshooting", "illegal memory access"),
    "out of memory": ("troubleshooting", "out of memory"),
    "install": ("toolchain-install", "install"),
    "installing": ("toolchain-install", "install"),
    "limitations": ("limitations", "limitation"),
    "gradients": ("transforms", "gradients"),
    "sharding": ("transforms", "sharding"),
    "compiling": ("compiler-options", "compile"),
    "profiling": ("profiling", "profile"),
    "caching": ("caching", "caching"),
    "remote caches": ("remote-cache", "remote cache"),
    "scratch memory": ("cpp-api", "scratch memory"),
    "docker": ("generated/repository/docker/README", "docker"),
    "wheel": ("packages", "wheel"),
    "BE301": ("errors", "be301"),
}
"""Words, the page to which the first result leads that is no entry of a reference, and what it shows."""


@pytest.mark.parametrize("words", SEARCHES)
def test_a_search_leads_to_the_page_first_and_shows_its_text(page: Page, words: str):
    name, text = SEARCHES[words]
    page.goto("/search.html?q=" + words.replace(" ", "+"))
    first = page.locator("#search-results li:not(.kind-object)").first
    expect(first.locator("p.context")).to_contain_text(re.compile(text, re.IGNORECASE))
    assert str(first.locator("a").first.get_attribute("href")).partition(".html")[0] == name
    results = page.locator("#search-results li a").evaluate_all("all => all.map(each => each.getAttribute('href'))")
    assert [each for each in results if "repository" in each and "README" not in each] == []


@pytest.mark.parametrize(
    ("words", "title"),
    [
        ("load_cuda_inline", "be_runtime.load_cuda_inline"),
        ("parallel_for", "BE::parallel_for"),
        ("BE_CACHE_DIR", "Settings"),
    ],
)
def test_a_name_is_found(page: Page, words: str, title: str):
    page.goto("/search.html?q=" + words)
    expect(page.locator("#search-results li").first).to_be_visible()
    assert title in page.locator("#search-results li a").all_inner_texts()


def test_the_keyboard_opens_the_search(page: Page):
    page.goto("/index.html")
    page.keyboard.press("Control+k")
    page.keyboard.type("workspace")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"search\.html\?q=workspace"))
    expect(page.locator("#search-results li a").first).to_be_visible()


def test_code_copies_as_it_is_run(page: Page):
    page.goto("/index.html")
    block = page.locator("div.highlight-python").first
    block.hover()
    block.locator("button.copybtn").click()
    page.wait_for_timeout(200)
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.startswith("import jax\n")
    assert "be_runtime.load_cpp_inline(" in copied
    compile(copied, "copied", "exec")


def test_copied_examples_have_no_prompts(page: Page):
    page.goto("/reference/python/load-cpp.html")
    block = page.locator("div.highlight", has_text=">>>").first
    block.hover()
    block.locator("button.copybtn").click()
    page.wait_for_timeout(200)
    copied = page.evaluate("navigator.clipboard.readText()")
    assert ">>>" not in copied
    assert "import" in copied


def brightness(page: Page) -> float:
    """The brightness of the background, from 0 to 1."""
    color = page.evaluate("getComputedStyle(document.body).backgroundColor")
    return sum(map(int, re.findall(r"\d+", color)[:3])) / (3 * 255)


def test_dark_mode_is_dark_and_stays(page: Page):
    page.goto("/index.html")
    assert brightness(page) > 0.9
    page.locator("button.theme-switch-button:visible").click()
    page.locator("button.theme-change-button[data-mode=dark]:visible").click()
    page.wait_for_function("document.documentElement.dataset.theme === 'dark'")
    page.wait_for_timeout(500)  # until colors have faded
    assert brightness(page) < 0.2
    page.screenshot(path=PICTURES / "dark-index.png")
    page.goto("/benchmark-results.html")
    shown = page.locator(".peers").first.locator("img:visible")
    assert shown.count() > 0
    assert all("only-dark" in str(each.get_attribute("class")) for each in shown.all())
    page.goto("/errors.html")
    assert brightness(page) < 0.2
    plot = "article img[src$='.svg']"
    for name, picture in (("index", plot), ("gallery/lif", plot), ("how-it-works", ".mermaid svg")):
        page.goto(f"/{name}.html")
        expect(page.locator(picture).first).to_have_css("background-color", "rgba(0, 0, 0, 0)")
        expect(page.locator(picture).first).to_have_css("filter", "none")


def test_each_language_has_a_tab(page: Page):
    page.goto("/index.html")
    for title, text in (("CUDA", "load_cuda_inline"), ("C++", "load_cpp_inline")):
        page.locator("label.sd-tab-label", has_text=title).click()
        expect(page.locator("div.sd-tab-content:visible", has_text=text)).to_be_visible()


def test_the_sidebar_opens_the_group_of_the_page_alone(page: Page):
    for name, most in (("index.html", 12), ("errors.html", 16), ("debugging.html", 20), ("from-cupy.html", 20)):
        page.goto(f"/{name}")
        shown = page.locator(".bd-sidebar-primary li:visible")
        assert 0 < shown.count() <= most, name


def test_the_text_is_as_wide_as_90_columns_of_code(page: Page):
    page.goto("/tutorial-cpp.html")
    width = page.evaluate("document.querySelector('article section > p').getBoundingClientRect().width")
    assert 820 <= width <= 880


PUBLISHED = ("gallery/ports", "gallery/norms", "reference/", "generated/")
"""Pages that show files and docstrings as they are."""


@pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith(PUBLISHED)])
def test_no_code_is_wider_than_its_column(page: Page, name: str):
    page.goto(f"/{name}")
    wide = "all => all.filter(each => each.scrollWidth > each.clientWidth + 1).map(each => each.textContent)"
    assert page.locator("article .highlight pre:visible").evaluate_all(wide) == []


def test_next_follows_the_path_of_a_learner(page: Page):
    page.goto("/index.html")
    path = []
    for _ in range(6):
        page.locator("a.right-next").click()
        page.wait_for_load_state()
        path.append(re.sub(r".*/(.+)\.html.*", r"\1", page.url))
    assert path == ["why", "toolchain-install", "tutorial-cpp", "tutorial-cuda", "call", "calling"]
    page.locator("a.left-prev").click()
    page.wait_for_url(re.compile("guides/call"))


def test_a_link_to_a_section_that_moved_leads_to_it(page: Page):
    page.goto("/reference/python.html#be_runtime.load_cuda_inline")
    page.wait_for_url(re.compile(r"/reference/python/load-cuda\.html#be_runtime\.load_cuda_inline"))


def test_a_diagram_is_drawn(page: Page):
    page.goto("/how-it-works.html")
    expect(page.locator("pre.mermaid svg")).to_have_count(5)


def test_a_card_of_the_gallery_has_a_picture_and_a_speed_up(page: Page):
    page.goto("/gallery/index.html")
    for card in page.locator(".sd-card").all():
        expect(card).to_contain_text("×")  # noqa: RUF001
        assert card.locator("img").evaluate("each => each.naturalWidth") > 200


def test_a_phone_s_menu_opens(context: BrowserContext):
    page = context.new_page()
    page.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
    page.goto("/index.html")
    entry = page.locator(".bd-sidebar-primary p.caption", has_text="Get started").first
    expect(entry).not_to_be_in_viewport()
    page.locator("button.primary-toggle").first.click()
    expect(entry).to_be_in_viewport()


@pytest.mark.parametrize("name", NAMES)
def test_a_page_fits_and_asks_no_other_server(page: Page, address: str, name: str):
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("requestfailed", lambda request: said.append(f"failed: {request.url}"))
    page.on(
        "request", lambda request: said.append(request.url) if not request.url.startswith((address, "data:")) else None
    )
    for place, (width, height) in (("desktop", DESKTOP), ("phone", PHONE)):
        page.set_viewport_size({"width": width, "height": height})
        page.goto(f"/{name}")
        page.wait_for_load_state("networkidle")
        wide = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        assert wide <= 0, f"{name} is {wide} pixels wider than a {place}"
        cut = page.evaluate(CUT)
        assert cut == [], f"{name} shows a part of these alone on a {place}"
        bare = page.evaluate(
            "[...document.querySelectorAll('article img')].filter(each => !each.alt).map(each => each.src)"
        )
        assert bare == [], "a picture has a text for who does not see it"
        if name in SHOWN:
            picture = f"{place}-{name.replace('/', '-').removesuffix('.html')}.png"
            page.screenshot(path=PICTURES / picture)
    assert said == []


@pytest.mark.parametrize("name", PAGES)
def test_no_marker_of_a_gallery_picture_hides_a_label(page: Page, name: str):
    page.goto(f"/_images/{name}.svg")
    labels, hidden = page.evaluate("""() => {
      const boxes = of => [...document.querySelectorAll(of)].map(each => each.getBoundingClientRect())
      const labels = boxes('#figure_1 text').filter(box => box.width)
      const meet = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom
      const markers = boxes("[id^=line2d] use").filter(box => box.width > 2)
      return [markers.length, labels.filter(label => markers.some(marker => meet(label, marker))).length]
    }""")
    assert (labels > 0, hidden) == (True, 0)


def test_the_site_is_small():
    assert sum(path.stat().st_size for path in SITE.rglob("*") if path.is_file()) < 30e6


def test_the_index_of_search_has_every_page():
    text = (SITE / "searchindex.js").read_text(encoding="utf-8")
    index = json.loads(text[text.index("(") + 1 : text.rindex(")")])
    special = {"genindex", "search", "py-modindex", "cpp-modindex"}
    assert {name.removesuffix(".html") for name in NAMES} - special <= set(index["docnames"])


def test_each_row_of_the_python_reference_has_a_description():
    assert "<td><p></p></td>" not in (SITE / "reference" / "python.html").read_text(encoding="utf-8")
