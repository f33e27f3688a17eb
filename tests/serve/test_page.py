"""The server's page in a real browser, where one and playwright are installed."""

import shutil
import threading
from dataclasses import replace
from itertools import count

import pytest

import streamed
import swiftk
from swiftk.testing import make_tiny

pytest.importorskip("fastapi")
api = pytest.importorskip("playwright.sync_api")

from patience import PATIENCE, until  # noqa: E402
from serving import serving  # noqa: E402

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="needs Chromium")


@pytest.fixture(scope="module")
def lm(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page") / "tiny"
    return swiftk.load(make_tiny(folder, "llama3", max_position_embeddings=8192), device="cpu", threads=1)


@pytest.fixture(scope="module")
def browser():
    with api.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield found
        found.close()


def asked(page, url, kind, **fields):
    page.goto(url)
    page.wait_for_function("document.getElementById('name').textContent === 'tiny'")
    page.select_option("#kind", kind)
    for name, value in fields.items():
        page.fill(f"#{name}", str(value))
    page.click("#go")


def test_a_text_is_shown_with_who_proposed_it(lm, browser, tmp_path):
    with serving(lm) as (url, _):
        page = browser.new_page()
        wrong = []
        page.on("pageerror", lambda error: wrong.append(error))
        for kind, prompt in ("completions", "hello"), ("chat/completions", [{"role": "user", "content": "hello"}]):
            want = lm.generate(prompt, max_new_tokens=40, temperature=0.5, seed=7)
            asked(page, url, kind, prompt="hello", tokens=40, temperature=0.5, seed=7)
            page.wait_for_function("document.getElementById('reported').textContent.includes('a second')")
            assert page.text_content("#text") == want.text
            assert page.locator("#text span").count() == len(want.tokens)
            assert f"{len(want.tokens)} tokens in" in page.text_content("#reported")
        assert "the model" in page.text_content("#legend") and not wrong
        page.screenshot(path=tmp_path / "page.png")
        page.close()


def test_prompts_on_disk_are_told_of(browser, tmp_path):
    """Where the server keeps some."""
    folder = make_tiny(tmp_path / "tiny", "llama3")
    for cache, told in (None, ""), (tmp_path / "prefixes", "0 files of 0.0 MB, 0 tokens read, 0 written"):
        with swiftk.load(folder, device="cpu", threads=1, prefix_cache=cache) as lm, serving(lm) as (url, _):
            page = browser.new_page()
            asked(page, url, "completions", prompt="hello", tokens=4)
            page.wait_for_function("document.getElementById('reported').textContent.includes('a second')")
            page.wait_for_function("told => document.getElementById('disk').textContent.includes(told)", arg=told)
            assert bool(page.text_content("#disk")) == bool(told)
            page.close()


def test_weights_from_disk_are_told_of(lm, browser, tmp_path):
    with streamed.load(streamed.make(tmp_path)) as other:
        for one, told in (lm, False), (other, True):
            with serving(one, names=("tiny",)) as (url, _):
                page = browser.new_page()
                asked(page, url, "completions", prompt="hello", tokens=8)
                page.wait_for_function("document.getElementById('reported').textContent.includes('a second')")
                assert ("s for weights from disk" in page.text_content("#reported")) == told
                page.close()


def test_errors_are_reported_and_a_text_can_be_stopped(lm, browser, monkeypatch):
    step, rounds, clicked = lm.step, count(), threading.Event()

    def held():
        if next(rounds) == 20:
            clicked.wait(PATIENCE)
        step()

    monkeypatch.setattr(lm, "step", held)
    with serving(lm, api_key="secret") as (url, server):
        page = browser.new_page()
        page.goto(url)
        page.fill("#prompt", "hello")
        page.click("#go")
        page.wait_for_function("document.getElementById('reported').textContent.includes('API key')")
        page.fill("#key", "secret")
        page.fill("#tokens", "8000")
        page.uncheck("#speculate")
        page.click("#go")
        page.wait_for_selector("#text span", state="attached")
        page.click("#stop")
        page.wait_for_function("document.getElementById('reported').textContent === 'stopped'")
        clicked.set()
        until(lambda: len(server.texts) == 0)
        page.close()


def go(page, prompt):
    """What the page reports of a text with its defaults, once it has ended."""
    page.fill("#prompt", prompt)
    page.click("#go")
    page.wait_for_function("document.getElementById('reported').textContent.includes('a second')")
    return page.text_content("#reported")


@pytest.mark.parametrize("template", [True, False])
def test_the_prompt_is_a_message_where_there_is_a_template(lm, browser, monkeypatch, template):
    if not template:
        monkeypatch.setattr(type(lm.tokenizer), "template", lambda *_: None)
    with serving(lm, api_key="secret") as (url, _):
        page = browser.new_page()
        page.goto(url)
        page.wait_for_function("document.getElementById('how').textContent.includes('API key')")
        page.fill("#key", "secret")
        go(page, "hello")
        message = [{"role": "user", "content": "hello"}]
        asked = {"max_new_tokens": 200, "temperature": 0}
        assert page.text_content("#text") == lm.generate(message if template else "hello", **asked).text
        assert ("by its chat template" if template else "it has no chat template") in page.text_content("#how")
        assert page.locator("#kind option[disabled]").count() == (0 if template else 1)
        if template:
            page.select_option("#kind", "completions")
            assert "without its chat template" in page.text_content("#how")
            go(page, "hello")
            assert page.text_content("#text") == lm.generate("hello", **asked).text
        page.close()


@pytest.mark.parametrize(
    ("kind", "says"), [("completions", "choose “a message”"), ("chat/completions", "ask otherwise")]
)
def test_a_text_that_ends_at_its_first_token_says_so(lm, browser, monkeypatch, kind, says):
    prompt = "hello" if kind == "completions" else [{"role": "user", "content": "hello"}]
    first = lm.generate(prompt, max_new_tokens=1, temperature=0).tokens[0]
    monkeypatch.setattr(lm, "defaults", replace(lm.defaults, eos_token_ids=(first,)))
    with serving(lm) as (url, _):
        page = browser.new_page()
        page.goto(url)
        page.wait_for_function("document.getElementById('name').textContent === 'tiny'")
        page.select_option("#kind", kind)
        reported = go(page, "hello")
        assert "Nothing to show: " in reported and says in reported
        page.close()
