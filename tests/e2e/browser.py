"""The part of WebDriver that is needed to use the chat page in headless Chromium like a person."""
import json
import shutil
import subprocess
import tempfile
import time
import urllib.request

import harness

ENTER, ESCAPE, SHIFT = "\ue007", "\ue00c", "\ue008"
FLAGS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-quic", "--no-first-run",
         "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions",
         "--no-default-browser-check", "--window-size=900,700"]
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"


class Browser:
    def __init__(self):
        self.port = harness.free_port()
        self.profile = tempfile.mkdtemp(prefix="infcgi-chromium.")
        self.driver = subprocess.Popen(["chromedriver", f"--port={self.port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        assert harness.until(self._is_up, 20), "chromedriver does not answer"
        options = {"args": [*FLAGS, f"--user-data-dir={self.profile}"], "binary": shutil.which("chromium")}
        reply = self.call("POST", "/session", {"capabilities": {"alwaysMatch": {
            "browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}}})
        self.session = f"/session/{reply['sessionId']}"

    def _is_up(self):
        try:
            return self.call("GET", "/status")["ready"]
        except OSError:
            return False

    def call(self, method, path, body=None):
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", method=method,
                                         data=json.dumps(body or {}).encode() if method == "POST" else None,
                                         headers={"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=60) as r:
                return json.load(r)["value"]
        except urllib.error.HTTPError as e:
            raise AssertionError(f"{method} {path}: {e.read().decode()[:600]}") from None

    def open(self, url):
        self.call("POST", f"{self.session}/url", {"url": url})

    def run(self, script, *args):
        return self.call("POST", f"{self.session}/execute/sync", {"script": script, "args": list(args)})

    def text(self, css):
        """Returns the texts of all elements that match, in order."""
        return self.run("return [...document.querySelectorAll(arguments[0])].map((e) => e.textContent)", css)

    def visible(self, css):
        return self.run("const e = document.querySelector(arguments[0]); return !!e && e.checkVisibility()", css)

    def click(self, css):
        found = self.call("POST", f"{self.session}/element", {"using": "css selector", "value": css})
        self.call("POST", f"{self.session}/element/{found[ELEMENT]}/click")

    def choose(self, css, *paths):
        """Chooses files for an input of the type file, hidden or not."""
        found = self.call("POST", f"{self.session}/element", {"using": "css selector", "value": css})
        self.call("POST", f"{self.session}/element/{found[ELEMENT]}/value", {"text": "\n".join(map(str, paths))})

    def keys(self, text):
        """Types into the focused element; SHIFT holds for the next key."""
        actions = []
        held = False
        for key in text:
            actions.append({"type": "keyDown", "value": key})
            if key == SHIFT:
                held = True
                continue
            actions.append({"type": "keyUp", "value": key})
            if held:
                actions.append({"type": "keyUp", "value": SHIFT})
                held = False
        self.call("POST", f"{self.session}/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": actions}]})

    def wait(self, condition, what, seconds=30):
        assert harness.until(condition, seconds, 0.05), f"{what}\nerror shown: {self.text('#error')}\nconsole: {self.console()}"

    def console(self):
        """Returns the messages that the page logged since the last call."""
        return [f"{e['level']}: {e['message']}" for e in self.call("POST", f"{self.session}/se/log", {"type": "browser"})]

    def cdp(self, method, **params):
        """Sends a command of Chromium's own protocol."""
        return self.call("POST", f"{self.session}/goog/cdp/execute", {"cmd": method, "params": params})

    def resize(self, width, height):
        self.call("POST", f"{self.session}/window/rect", {"width": width, "height": height})

    def close(self):
        try:
            self.call("DELETE", self.session)
        except (OSError, AssertionError, AttributeError):
            pass
        self.driver.terminate()
        self.driver.wait(10)
        for _ in range(20):   # Chromium may still write
            shutil.rmtree(self.profile, ignore_errors=True)
            time.sleep(0.05)
