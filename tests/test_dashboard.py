# SPDX-License-Identifier: Apache-2.0
"""The dashboard in a real browser. Skipped where Chromium or playwright is not installed (tools/setup.sh browser)."""

import json
import shutil
import subprocess
from subprocess import PIPE

import pytest
from running import PROGRAM

CHROMIUM = shutil.which("chromium")
if CHROMIUM is None:
    pytest.skip("chromium is not installed: tools/setup.sh browser", allow_module_level=True)
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: tools/setup.sh browser")

LIMIT_MS = 60_000


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM)
        yield browser
        browser.close()


@pytest.fixture
def cluster(cluster):
    cluster.up()
    return cluster


@pytest.fixture
def page(browser, cluster):
    context = browser.new_context()
    context.set_default_timeout(LIMIT_MS)
    page = context.new_page()
    page.problems = []
    page.on("pageerror", lambda error: page.problems.append(str(error)))
    page.goto(cluster.ok("dashboard").strip())
    page.wait_for_url("**/")
    page.get_by_text("live").wait_for()
    yield page
    assert page.problems == []
    context.close()


def test_a_link_logs_one_browser_in_and_no_other(browser, cluster):
    link = json.loads(cluster.ok("dashboard", "--json"))["link"]
    context = browser.new_context()
    page = context.new_page()
    page.goto(link)
    page.wait_for_url("**/")
    page.get_by_text("live").wait_for()
    (cookie,) = context.cookies()
    assert cookie["httpOnly"] and cookie["sameSite"] == "Strict"
    stranger = browser.new_context().new_page()
    assert stranger.goto(link).status == 401
    assert stranger.goto(link.split("login")[0]).status == 401


def test_jobs_come_and_go_while_one_looks_on(page, cluster):
    job = cluster.submit("--name", "first", "--", "sh", "-c", "echo said; exec sleep 1000")
    page.get_by_role("link", name=f"{job} first").wait_for()
    page.locator(".row", has_text="running").first.wait_for()
    assert page.locator("#cluster svg rect.box").count() == 1
    page.locator("#decisions li", has_text=f"job {job}: 0 → 1").wait_for()
    page.get_by_role("link", name=f"{job} first").click()
    page.locator("#job pre", has_text="said").wait_for()
    page.locator("#job svg[aria-label='ring of 1 workers']").wait_for()
    cluster.ok("cancel", job)
    page.locator("#job dd", has_text="cancelled").wait_for()


def test_what_a_job_is_called_is_text(page, cluster):
    cluster.submit("--name", "<img src=x onerror=alert(1)>", "--", "sleep", "1000")
    page.locator(".row", has_text="<img src=x").wait_for()
    assert page.locator(".row img").count() == 0


def test_it_goes_on_when_the_daemon_is_started_again(page, cluster):
    address = (cluster.data / "address").read_text().strip()
    cluster.submit("--name", "before", "--", "sleep", "1000")
    page.locator(".row", has_text="before").wait_for()
    cluster.kill()
    page.get_by_text("trying again").wait_for()
    cluster.daemon = subprocess.Popen(
        [PROGRAM, "up", "--listen", address], env=cluster.environment, cwd=cluster.folder, stdout=PIPE, stderr=PIPE, text=True
    )
    page.get_by_text("live").wait_for()
    cluster.submit("--name", "after", "--", "sleep", "1000")
    page.locator(".row", has_text="after").wait_for()
    page.locator(".row", has_text="before").wait_for()


def test_three_thousand_jobs_are_a_list_of_the_rows_that_are_seen(page, cluster):
    page.route(
        "**/v1/jobs",
        lambda route: route.fulfill(json={"jobs": [
            {"id": str(number), "name": f"job-{number}", "owner": "ann", "state": "queued", "reason": "", "workers": 0, "min_workers": 1,
             "max_workers": 4, "servers": [], "ring": [], "submitted_s": number, "started_s": None, "finished_s": None, "exit_code": None,
             "retries": 0, "resizes": 0}
            for number in range(1, 3001)
        ]}),
    )  # fmt: skip
    page.reload()
    page.get_by_text("waiting 3000").wait_for()
    assert page.locator(".row").count() < 100
    page.locator(".list").evaluate("list => list.scrollTop = list.scrollHeight")
    page.locator(".row", has_text="3000 job-3000").wait_for()
    assert page.locator(".row").count() < 100
