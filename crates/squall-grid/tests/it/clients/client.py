"""A stock Playwright client for the tests: opens a page and prints its title."""

import sys

from playwright.sync_api import sync_playwright

with sync_playwright() as playwright:
    browser = playwright.chromium.connect(sys.argv[1])
    page = browser.new_context().new_page()
    page.goto("data:text/html,<title>squall</title>")
    print(page.title())
    browser.close()
