"""Take pictures of a report's figures for the results pages.

    python tools/shoot_figures.py REPORT [NAME='how its caption begins' ...]

Without names it lists the captions. Pictures go to docs/results/figures/NAME.png.
"""

from __future__ import annotations

import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

FIGURES = Path(__file__).parent.parent / "docs" / "results" / "figures"


def main(report: Path, wanted: dict[str, str]) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1000, "height": 900}, device_scale_factor=1.25)
        page.goto(report.resolve().as_uri())
        # A figure is drawn once it is in sight, and folded parts are not.
        page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
        page.evaluate("document.querySelectorAll('button').forEach(one => one.hidden = true)")
        figures, left = page.locator("figure"), dict(wanted)
        for number in range(figures.count()):
            one = figures.nth(number)
            caption = one.locator("figcaption").inner_text() if one.locator("figcaption").count() else ""
            # Of several with one caption the first is meant.
            name = next((name for name, start in left.items() if caption.startswith(start)), None)
            if not wanted:
                print(caption[:150])
            if name is not None:
                del left[name]
                one.scroll_into_view_if_needed()
                one.locator(".main-svg, canvas, svg").first.wait_for(timeout=20_000)
                page.wait_for_timeout(800)
                drawn = one.locator(".plot, .plotly, .js-plotly-plot").first
                (drawn if drawn.count() else one).screenshot(path=FIGURES / f"{name}.png")
                print(FIGURES / f"{name}.png")
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), dict(pair.split("=", 1) for pair in sys.argv[2:]))
