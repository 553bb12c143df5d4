"""The built pages in a browser: light, dark and narrow; no console error, formulas, the slider moves.

Needs a Chromium (Debian: ``apt-get install chromium``); skipped, with the reason, where there is none.
"""

from __future__ import annotations

import http.server
import shutil
import sys
import threading
from functools import partial
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tools"))
import book  # noqa: E402

BROWSER = next(filter(None, map(shutil.which, ("google-chrome", "chromium", "chromium-browser"))), None)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium installed: apt-get install chromium")
SHOTS = ROOT / "build" / "screenshots"


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@pytest.fixture(scope="module")
def address():
    """The built book, served on the loopback interface; built first if it is not that of these sources."""
    if not book.is_built():
        book.build()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(book.HTML)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=BROWSER,
            args=[
                "--no-sandbox",
                "--disable-gpu",
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
            ],
        )
        yield chromium
        chromium.close()


def open_page(browser, address: str, page: str, width: int, scheme: str):
    """The page after loading, and what its console complained of."""
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    context.add_init_script(
        f"localStorage.setItem('mode', '{scheme}'); localStorage.setItem('theme', '{scheme}')"
    )
    tab, complaints = context.new_page(), []
    # the Colab badge is a picture from Colab's own site: there may be no network here
    context.route(
        "https://colab.research.google.com/**",
        lambda route: route.fulfill(
            status=200, content_type="image/svg+xml", body="<svg xmlns='http://www.w3.org/2000/svg'/>"
        ),
    )
    tab.on("console", lambda m: complaints.append(m.text) if m.type == "error" else None)
    tab.on("pageerror", lambda error: complaints.append(str(error)))
    tab.on("requestfailed", lambda request: complaints.append(f"failed: {request.url}"))
    tab.goto(f"{address}/{page}.html", wait_until="load")
    tab.wait_for_timeout(300)
    return tab, complaints


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "light")])
@pytest.mark.parametrize("page", book.toc_pages())
def test_page(browser, address, page, width, scheme):
    tab, complaints = open_page(browser, address, page, width, scheme)
    SHOTS.mkdir(parents=True, exist_ok=True)
    tab.screenshot(path=SHOTS / f"{page.replace('/', '-')}-{scheme}-{width}.png", full_page=True)
    assert complaints == []
    assert tab.locator("article.bd-article h1").first.is_visible()
    assert tab.evaluate("document.documentElement.dataset.theme") == scheme
    # nothing wider than the screen but what scrolls inside its own box
    assert tab.evaluate("document.documentElement.scrollWidth") <= width + 1
    broken = tab.evaluate(
        "[...document.images].filter(i => i.complete && !i.naturalWidth && !i.src.includes('colab')).map(i => i.src)"
    )
    assert broken == []
    assert "$$" not in tab.locator("main").first.inner_text()
    assert tab.locator(".katex-error").count() == 0
    tab.context.close()


@pytest.mark.parametrize("page", ["notebooks/02-symmetry", "notebooks/03-displacement", "book/notation"])
def test_formulas_are_rendered(browser, address, page):
    tab, _ = open_page(browser, address, page, 1280, "light")
    assert tab.locator(".katex").count() >= 10
    assert tab.locator(".katex .mfrac").count() >= 1
    tab.context.close()


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("page", ["notebooks/02-symmetry", "notebooks/10-hard-positives", "book/notation"])
def test_wide_formulas_scroll_instead_of_losing_an_end(browser, address, page, width):
    tab, _ = open_page(browser, address, page, width, "light")
    cut = tab.evaluate(
        """() => [...document.querySelectorAll('div.math')].filter(box => {
            const outer = box.getBoundingClientRect();
            const inner = box.querySelector('.katex-display').getBoundingClientRect();
            return inner.left < outer.left - 1 || inner.right > outer.right + 1;
        }).map(box => box.innerText)"""
    )
    assert cut == []
    tab.context.close()


def test_slider_moves_without_a_kernel(browser, address):
    tab, _ = open_page(browser, address, "notebooks/03-displacement", 1280, "light")
    explorer = tab.locator(".explorer")
    assert explorer.count() == 1
    picture, slider = explorer.locator("img"), explorer.locator("input[type=range]")
    before, label = picture.get_attribute("src"), explorer.locator(".step").inner_text()
    slider.fill("4")
    after = picture.get_attribute("src")
    assert after != before
    assert explorer.locator(".step").inner_text() != label
    explorer.locator("input[type=radio]").nth(1).check()
    assert picture.get_attribute("src") != after
    assert picture.evaluate("i => i.naturalWidth") > 300
    tab.context.close()


def test_figures_keep_a_white_face_in_dark_mode(browser, address):
    tab, _ = open_page(browser, address, "notebooks/01-readout-blindness", 1280, "dark")
    figure = tab.locator("div.cell_output img").first
    style = figure.evaluate("i => [getComputedStyle(i).filter, getComputedStyle(i).backgroundColor]")
    assert style == ["none", "rgb(255, 255, 255)"]
    tab.context.close()
