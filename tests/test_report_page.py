"""The report in a real browser: it draws, sorts, filters, zooms, explains, and runs no data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from report_browser import CHROMIUM, Browser, Page
from report_results import HOSTILE, RESULTS, estimate_result, sweep_result

from xla_cost.report.page import embedded, page
from xla_cost.report.result_file import checked

needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")


@pytest.fixture(scope="module")
def browser():
    with Browser() as made:
        yield made


@pytest.fixture(scope="module")
def show(browser, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")

    def draw(result: dict, **options) -> Page:
        path = folder / f"{len(list(folder.iterdir()))}.html"
        path.write_text(page(checked(result, "result.json")), encoding="utf-8")
        return browser.page(path, **options)

    return draw


def column(found: Page, card: str, index: int) -> list[str]:
    """Printed cells of a column of the table in the card with that heading."""
    return found.run(
        f"[...[...document.querySelectorAll('.card')].find(c => c.querySelector('h2')?.textContent"
        f" === {json.dumps(card)}).querySelectorAll('tbody tr')]"
        f".map(r => r.cells[{index}].textContent)"
    )


def mark(found: Page, card: str, inner: str, name: str) -> str:
    """Gives an element of a card an id and returns its selector."""
    found.run(
        f"[...document.querySelectorAll('.card')].find(c => c.querySelector('h2')?.textContent"
        f" === {json.dumps(card)}).querySelector({json.dumps(inner)}).id = {json.dumps(name)}"
    )
    return f"#{name}"


@needs_chromium
@pytest.mark.parametrize("kind", RESULTS)
def test_every_kind_draws(show, kind):
    """Nothing on the console, no network; on a phone nothing to scroll sideways."""
    found = show(RESULTS[kind]())
    assert found.problems() == []
    assert all(address.startswith(("file:", "data:")) for address in found.requests())
    assert found.run("document.querySelectorAll('.card').length") >= 1
    assert (
        found.run("document.getElementById('report').textContent.includes('cannot be drawn')")
        is False
    )
    assert found.run("getComputedStyle(document.getElementById('assumptions')).display") == "block"
    found.resize(390, 844)
    assert found.run("document.documentElement.scrollWidth") == 390
    assert found.problems() == []


@needs_chromium
def test_headline_has_the_ratio_and_both_machines(show):
    result = estimate_result()
    found = show(result)
    assert found.run("document.querySelector('.ratio').textContent") == f"{result['ratio']:.2f}×"
    assert found.run("[...document.querySelectorAll('.machine h3')].map(e => e.textContent)") == [
        "toy", "toy-photonic"]  # fmt: skip
    assert found.run("document.title") == "toy prefill on 8 devices: toy against toy-photonic"


@needs_chromium
def test_collectives_sort_both_ways_and_filter(show):
    """gather moves 40 bytes, permute 300; the permute is the dearer one at these bandwidths."""
    found = show(estimate_result())
    payload = 5
    header = mark(found, "Collectives", f"th:nth-child({payload + 1}) button", "payload")
    assert found.run(f"document.querySelector('{header}').textContent") == "Payload"
    found.click(header)
    assert column(found, "Collectives", payload) == ["300 B", "40 B"]
    found.click(header)
    assert column(found, "Collectives", payload) == ["40 B", "300 B"]
    assert found.run(f"document.querySelector('{header}').parentElement.ariaSort") == "ascending"
    field = mark(found, "Collectives", "input", "filter")
    found.click(field)
    found.call("Input.insertText", text="permute")
    assert column(found, "Collectives", payload) == ["300 B"]
    assert found.problems() == []


@needs_chromium
def test_hovering_an_event_says_what_it_is(show):
    found = show(estimate_result())
    first = "document.querySelector('.event')"
    found.mouse(".event")
    text = found.run("document.querySelector('.tip').textContent")
    assert found.run("document.querySelector('.tip').hidden") is False
    for word in ("dot", "layer/ffn", "bound by", "compute", "bytes", "2 s"):
        assert word in text
    found.mouse("h1")
    assert found.run("document.querySelector('.tip').hidden") is True
    assert found.run(f"{first} !== null") is True


@needs_chromium
def test_timeline_zooms_and_shows_tiers(show):
    """One trip is drawn first; `Whole run` shows head too, and repeated trips hatched."""
    found = show(estimate_result())
    assert found.run("[...document.querySelectorAll('.lane-name')].map(e => e.textContent)") == [
        "compute", "scale-up", "scale-out"]  # fmt: skip
    before = found.run("document.querySelectorAll('.event').length")
    found.click(mark(found, "Timeline", ".choice button", "whole"))
    assert found.run("document.querySelectorAll('.event').length") > before
    assert found.run("document.querySelectorAll('.repeat').length") > 0
    found.mouse(".loop")
    assert "layer × 3" in found.run("document.querySelector('.tip').textContent")


@needs_chromium
def test_roofline_has_every_op_and_a_tip(show):
    """Over bytes, as no op of the toy has both FLOPs and bytes: gather, permute and add."""
    found = show(estimate_result())
    result = estimate_result()["results"][0]["tasks"]
    expected = sum(1 for size in result["bytes"] if size)
    assert found.run("document.querySelectorAll('.dot').length") == expected == 3
    found.mouse(".dot")
    assert "bytes/s" in found.run("document.querySelector('.tip').textContent")


@needs_chromium
def test_flame_zooms_into_a_scope_and_back(show):
    found = show(estimate_result())
    found.click(".flame-block", 1)
    crumbs = "[...document.querySelectorAll('.crumbs button')].map(b => b.textContent)"
    assert found.run(crumbs) == ["whole program", "layer"]
    found.click(".crumbs button", 0)
    assert found.run(crumbs) == ["whole program"]


@needs_chromium
def test_details_of_the_other_machine(show):
    found = show(estimate_result())
    found.click(".pick button", 1)
    assert (
        found.run(
            "document.getElementById('report').textContent.includes('one device of toy-photonic')"
        )
        is True
    )
    assert found.problems() == []


@needs_chromium
def test_heat_map_shows_ratios_and_drills_down(show):
    """Ratios: 2 at 8 devices and 4 at 16; 1024 tokens on 8 has no copper row, so no ratio."""
    found = show(sweep_result())
    cells = "[...document.querySelectorAll('.map tbody td')].map(c => c.textContent)"
    assert found.run(cells) == ["none", "4.00×", "2.00×", "4.00×"]
    found.click(".map td button", 2)
    assert found.run("document.querySelector('.heat ~ div h3').textContent") == (
        "devices 16, seq 8192"
    )
    assert found.run("document.querySelectorAll('.heat ~ div tbody tr').length") == 2
    assert found.problems() == []


@needs_chromium
def test_hostile_names_are_text(show):
    found = show(estimate_result(HOSTILE))
    found.mouse(".event")
    assert found.problems() == []
    assert found.run("window.hacked") is None
    assert found.run("document.querySelectorAll('img, iframe, object').length") == 0
    assert found.run("document.querySelectorAll('script').length") == 2
    assert found.run("document.querySelector('.tip strong').textContent") == HOSTILE
    assert found.run("({}).hacked === undefined && Object.prototype.hacked === undefined") is True


@needs_chromium
def test_hostile_keys_are_text_too(show):
    table = json.loads('{"a": [{"__proto__": {"x": 1}, "constructor": 2, "k<b>": 3}], "b": {}}')
    found = show({**table, HOSTILE: {HOSTILE: HOSTILE}})
    assert found.problems() == []
    assert found.run("window.hacked") is None
    assert found.run("document.querySelectorAll('img, b').length") == 1  # of the side panel


@needs_chromium
def test_dark_follows_the_system_and_the_button(show):
    background = "getComputedStyle(document.body).backgroundColor"
    light, dark = show(estimate_result()), show(estimate_result(), dark=True)
    assert light.run(background) == "rgb(244, 245, 248)"
    assert dark.run(background) == "rgb(16, 19, 26)"
    dark.click(".theme")
    assert dark.run(background) == "rgb(244, 245, 248)"


@needs_chromium
def test_prints(show):
    """With assumptions opened, on more than one page."""
    printed = show(estimate_result()).pdf()
    assert printed.startswith(b"%PDF-")
    assert printed.count(b"/Type /Page\n") > 1


def test_data_cannot_end_its_block():
    """`<`, `>`, `&` and line separators are escapes; the JSON still reads as what it was."""
    text = embedded({HOSTILE: [HOSTILE]})
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text) == {HOSTILE: [HOSTILE]}


def test_page_is_one_small_file_that_names_no_address():
    text = page(checked(estimate_result(), "result.json"))
    assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in text
    assert "src=" not in text.split('id="result"')[0]
    assert len(text.encode()) < 150_000


def test_title_is_escaped():
    text = page(checked(estimate_result(HOSTILE), "result.json"))
    assert text.count("</script>") == 2
    assert "<img" not in text


def test_scripts_never_write_markup():
    """No innerHTML, eval, document.write: data has no way to become markup or code."""
    folder = Path(__file__).parent.parent / "xla_cost" / "report" / "assets"
    scripts = sorted(folder.glob("*.js"))
    assert len(scripts) >= 13
    for script in scripts:
        text = script.read_text()
        for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(",
                     "new Function", "fetch(", "XMLHttpRequest", "import("):  # fmt: skip
            assert word not in text, f"{script.name}: {word}"
        assert len(text.splitlines()) <= 400
