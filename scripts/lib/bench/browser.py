"""A headless Chromium, controlled through its debugging pipe (Chrome DevTools Protocol). Knows no page."""
import json
import os
import select
import subprocess

# Seconds until an answer.
PATIENCE = 60
# It reads requests at descriptor 3 and writes answers to 4; in the pipes each message ends with a zero byte.
START = """exec chromium --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run --disable-background-networking \
--disable-component-update --disable-sync --ignore-certificate-errors --remote-debugging-pipe --user-data-dir="$1" 3<&"$2" 4>&"$3" """


class Browser:
    """With one page of 1280 x 640 pixels. `folder` is for its profile."""

    def __init__(self, folder):
        requests, self.requests = os.pipe()
        self.answers, answers = os.pipe()
        self.process = subprocess.Popen(["bash", "-c", START, "bash", folder, str(requests), str(answers)], pass_fds=(requests, answers),
                                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(requests)
        os.close(answers)
        self.number, self.session, self.left = 0, None, b""

    def open(self):
        """Opens its page."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Page.enable")
        self.call("Emulation.setDeviceMetricsOverride", width=1280, height=640, deviceScaleFactor=1, mobile=False)

    def call(self, method, **params):
        self.number += 1
        request = {"id": self.number, "method": method, "params": params} | ({"sessionId": self.session} if self.session else {})
        os.write(self.requests, json.dumps(request).encode() + b"\0")
        while (message := self.message()).get("id") != self.number:
            pass
        if "error" in message:
            raise RuntimeError(f"chromium: {method}: {message['error']}")
        return message["result"]

    def message(self):
        while b"\0" not in self.left:
            if not select.select([self.answers], [], [], PATIENCE)[0]:
                raise SystemExit("bench: chromium does not answer")
            if not (part := os.read(self.answers, 1 << 16)):
                raise SystemExit("bench: chromium has ended")
            self.left += part
        message, self.left = self.left.split(b"\0", 1)
        return json.loads(message)

    def go(self, url):
        """Opens an address. Fails if it cannot be loaded, also if the network of the host changes meanwhile."""
        if error := self.call("Page.navigate", url=url).get("errorText"):
            raise SystemExit(f"bench: chromium: {url.split('#')[0]}: {error}")

    def value(self, expression):
        """Value of an expression, or of its promise."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"chromium: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def stop(self):
        # Its children end with it.
        self.process.kill()
        self.process.wait()
        os.close(self.requests)
        os.close(self.answers)
