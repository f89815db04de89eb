"""The page in a real browser: Debian's Chromium, headless, driven by Playwright."""

import csv
import io
import json
import shutil

import pytest

import latentdag as ld
from latentdag import report, simulate

playwright = pytest.importorskip("playwright.sync_api", reason="browser tests need playwright (pip install playwright)")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on the PATH: apt-get install chromium")

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
NASTY = [
    "wt",
    "<script>document.title='run'</script>",
    "\"onmouseover=\"document.title='run'",
    "</script><img src=x onerror=\"document.title='run'\">",
    'a,b "c"\nd',
    "=2+3",
]


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Files of a plain and of a nasty report, and the dicts behind them."""
    folder = tmp_path_factory.mktemp("reports")
    made = {}
    plain = simulate.sample_moments(simulate.random_model(12, 16, density=0.3, rng=4), 3_000, rng=0)
    m = simulate.sample_moments(simulate.random_model(5, 8, rng=2), 2_500, rng=0)
    nasty = ld.Moments.from_covariances(
        m.covariances, m.counts, contexts=NASTY, control="wt", means=m.means, feature_names=[*NASTY, "f6", "f7"]
    )
    for name, moments in {"plain": plain, "nasty": nasty}.items():
        made[name] = report.collect(ld.fit(moments), moments)
        (folder / f"{name}.html").write_bytes(report.to_html(made[name]).encode())
        made[name + " path"] = (folder / f"{name}.html").as_uri()
    return made


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with playwright.sync_playwright() as p:
        context = p.chromium.launch_persistent_context(
            str(tmp_path_factory.mktemp("profile")),
            executable_path=CHROMIUM,
            args=FLAGS,
            viewport={"width": 1280, "height": 900},
        )
        yield context
        context.close()


@pytest.fixture
def open_page(browser, pages):
    """Open a report; at the end nothing may have gone wrong in it, or gone out of it."""
    opened, trouble = [], []

    def open_it(name="plain", **options):
        page = browser.new_page()
        opened.append(page)
        page.on("console", lambda message: trouble.append(message.text))
        page.on("pageerror", lambda error: trouble.append(str(error)))
        page.on("dialog", lambda dialog: trouble.append(dialog.message))
        page.on(
            "request",
            lambda r: (
                None
                if r.url == pages[f"{name} path"] or r.url.startswith(("data:", "blob:"))
                else trouble.append(r.url)
            ),
        )
        if "width" in options:
            page.set_viewport_size({"width": options["width"], "height": 800})
        page.emulate_media(color_scheme=options.get("scheme", "light"), reduced_motion="reduce")
        page.goto(pages[f"{name} path"])
        return page

    yield open_it
    for page in opened:
        page.close()
    assert trouble == []


def visible_edges(page):
    return page.locator(".edge:not(.hidden)").count()


def test_hover_shows_the_equation_of_a_latent_and_the_interval_of_an_edge(open_page, pages):
    page, made = open_page(), pages["plain"]
    i = next(i for i, z in enumerate(made["latents"]) if z["causes"])
    page.locator(".node").nth(i).hover()
    shown = page.locator("#details").inner_text()
    assert made["latents"][i]["equation"] in shown
    assert made["latents"][i]["features"][0]["feature"] in shown
    page.mouse.move(0, 0)
    assert "Point at" in page.locator("#details").inner_text()
    # the middle of an edge may lie under another; its own event is what matters
    page.locator(".edge").first.dispatch_event("pointerenter")
    shown = page.locator("#details").inner_text()
    edge = made["edges"][0]
    assert f"{edge['source']} → {edge['target']}" in shown
    assert "95 % interval" in shown
    assert "q " in shown


def test_selecting_a_latent_highlights_its_ancestors(open_page, pages):
    page, made = open_page(), pages["plain"]
    parents = {}
    for edge in made["edges"]:
        parents.setdefault(edge["target"], set()).add(edge["source"])
    names = [z["latent"] for z in made["latents"]]
    chosen = max(names, key=lambda name: made["latents"][names.index(name)]["ancestors"])
    expected, queue = set(), [chosen]
    while queue:
        new = parents.get(queue.pop(), set()) - expected
        expected |= new
        queue += new
    page.locator(".node").nth(names.index(chosen)).click()
    found = page.evaluate("[...document.querySelectorAll('.node.related')].map(n => Number(n.dataset.node))")
    assert {names[i] for i in found} == expected | {chosen}
    page.select_option("#highlight", "down")
    assert page.locator(".node.related").count() == 1 + made["latents"][names.index(chosen)]["descendants"]
    page.locator("#find").fill(names[0])
    assert page.locator("#details h3").inner_text() == names[0]


def test_slider_and_q_value_hide_edges(open_page, pages):
    page, edges = open_page(), pages["plain"]["edges"]
    assert visible_edges(page) == len(edges)
    page.locator("#threshold").fill("0.4")
    strong = [e for e in edges if abs(e["standardized_weight"]) >= 0.4]
    assert 0 < len(strong) < len(edges)
    assert visible_edges(page) == len(strong)
    assert page.locator("#edge-count").inner_text() == f"{len(strong)} of {len(edges)} edges shown"
    page.locator("#threshold").focus()
    page.keyboard.press("Home")
    page.select_option("#q-filter", "0.001")
    assert visible_edges(page) == sum(e["q_value"] <= 0.001 for e in edges)


def column(page, table, index):
    return page.locator(f"table[data-table={table}] tbody tr:not([hidden]) td:nth-child({index})").all_inner_texts()


def test_tables_sort_by_mouse_and_keyboard_and_filter(open_page, pages):
    page, edges = open_page(), pages["plain"]["edges"]
    key = [c["key"] for c in next(t for t in pages["plain"]["tables"] if t["id"] == "edges")["columns"]].index(
        "weight"
    ) + 1
    button = page.locator("table[data-table=edges] button[data-key=weight]")
    button.click()
    up = column(page, "edges", key)
    numbers = [float(text.replace("−", "-").replace(",", "")) for text in up]
    assert numbers == sorted(numbers)
    assert len(numbers) == len(edges)
    button.focus()
    page.keyboard.press("Enter")
    assert column(page, "edges", key) == up[::-1]
    assert page.locator("table[data-table=edges] th[aria-sort=descending]").count() == 1
    page.locator("table[data-table=contexts] button[data-key=context]").click()
    names = column(page, "contexts", 1)
    assert names.index("c2") < names.index("c10")  # as people count
    page.locator(".filter[data-table=edges]").fill(edges[0]["source"])
    assert 0 < len(column(page, "edges", 1)) < len(edges)


def downloaded(page, selector):
    with page.expect_download() as waiting:
        page.locator(selector).click()
    with open(waiting.value.path(), newline="", encoding="utf-8") as file:
        return waiting.value.suggested_filename, file.read()


def test_downloads_hold_everything_quoted_right(open_page, pages):
    page, made = open_page("nasty"), pages["nasty"]
    name, text = downloaded(page, ".download[data-table=edges]")
    assert name == "latentdag-edges.csv"
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    assert [row["source"] for row in rows] == [edge["source"] for edge in made["edges"]]
    assert [float(row["weight"]) for row in rows] == [edge["weight"] for edge in made["edges"]]
    _, text = downloaded(page, ".download[data-table=features]")
    found = [row["feature"] for row in csv.DictReader(io.StringIO(text, newline=""))]
    assert found == [feature["feature"] for feature in made["features"]]
    assert set(NASTY[1:]) <= set(found)  # nothing neutralised, nothing lost
    name, text = downloaded(page, "#download-json")
    assert name == "latentdag-report.json"
    assert json.loads(text) == made


def test_labels_with_markup_are_inert(open_page, pages):
    page = open_page("nasty")
    for i in range(5):
        page.locator(".node").nth(i).hover()
        assert page.locator("#details h3").inner_text().strip() != ""
    for e in range(len(pages["nasty"]["edges"])):
        page.locator(".edge").nth(e).dispatch_event("pointerenter")
    page.locator("table[data-table=contexts] button[data-key=context]").click()
    assert page.title() == pages["nasty"]["title"]
    assert page.locator("img, iframe, main script").count() == 0
    shown = column(page, "contexts", 1)
    assert set(NASTY[1:4]) <= set(shown)


def test_the_policy_stops_what_would_slip_through(browser, pages, tmp_path):
    """Even markup put into the finished page by hand does not run."""
    text = report.to_html(pages["plain"]).replace(
        "<main", "<script>document.title='run'</script><img src=x onerror=\"document.title='run'\"><main", 1
    )
    (tmp_path / "broken.html").write_text(text, encoding="utf-8")
    page = browser.new_page()
    page.goto((tmp_path / "broken.html").as_uri())
    page.wait_for_timeout(100)
    assert page.title() == pages["plain"]["title"]
    assert page.locator("#details").inner_text() != ""
    page.close()


def test_keyboard_alone_reaches_every_latent_and_edge(open_page, pages):
    page, made = open_page(), pages["plain"]
    page.locator("#zoom-in").focus()
    page.keyboard.press("Tab")
    if page.evaluate("document.activeElement.id") == "canvas":  # a box that scrolls is a stop of its own
        page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.dataset.node") == "0"
    assert made["latents"][0]["equation"] in page.locator("#details").inner_text()
    outline = page.locator(".node").first.locator("rect").evaluate("r => getComputedStyle(r).strokeWidth")
    assert float(outline.removesuffix("px")) >= 3  # focus can be seen
    seen, queue = {0}, [0]
    while queue:
        start = queue.pop()
        for key in ("ArrowDown", "ArrowUp", "ArrowLeft", "ArrowRight"):
            page.evaluate("i => document.querySelector(`.node[data-node='${i}']`).focus()", start)
            page.keyboard.press(key)
            reached = int(page.evaluate("document.activeElement.dataset.node"))
            queue += [reached] if reached not in seen else []
            seen.add(reached)
    assert seen == set(range(len(made["latents"])))
    cause = next(i for i, z in enumerate(made["latents"]) if z["effects"])
    page.evaluate("i => document.querySelector(`.node[data-node='${i}']`).focus()", cause)
    page.keyboard.press("e")
    assert page.evaluate("document.activeElement.classList.contains('edge')")
    assert "→" in page.locator("#details h3").inner_text()
    page.keyboard.press("Enter")
    assert "Held" in page.locator("#details").inner_text()
    page.keyboard.press("Escape")
    assert "Point at" in page.locator("#details").inner_text()


def test_everything_that_can_be_focused_has_a_name(open_page):
    page = open_page()
    assert page.locator(".node:not([aria-label]), .edge:not([aria-label])").count() == 0
    unnamed = page.evaluate(
        "[...document.querySelectorAll('button, input, select')].filter(e => !(e.textContent.trim() || e.getAttribute('aria-label') || e.labels?.length)).length"
    )
    assert unnamed == 0


def luminance(color):
    channels = [int(c) / 255 for c in color.removeprefix("rgb(").removesuffix(")").split(",")]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_both_schemes_have_the_contrast_that_guidelines_ask_for(open_page, scheme):
    page = open_page(scheme=scheme)
    ground = luminance(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert (ground < 0.1) == (scheme == "dark")
    for selector in ("h1", ".lead", ".quiet", ".key.positive", ".key.negative", "nav a", ".checks p"):
        ink = luminance(page.locator(selector).first.evaluate("e => getComputedStyle(e).color"))
        ratio = (max(ink, ground) + 0.05) / (min(ink, ground) + 0.05)
        assert ratio >= 4.5, (selector, ratio)


@pytest.mark.parametrize("name", ["plain", "nasty"])
def test_a_phone_needs_no_sideways_scrolling(open_page, name):
    page = open_page(name, width=375)
    assert page.evaluate("document.documentElement.scrollWidth") <= 375
    page.locator(".node").first.click()
    assert page.evaluate("document.documentElement.scrollWidth") <= 375
    panel = page.locator("#details").bounding_box()
    assert panel["y"] + 40 < 800  # the equation is on the screen
    size = page.locator(".node text").first.evaluate("t => t.getBoundingClientRect().height")
    assert size >= 9
