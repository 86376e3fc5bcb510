"""The page with thousands of nodes in a browser: how soon it is painted, has all rows, and follows a filter. Simulated nodes
are connected to a bridge of their own meanwhile.
"""
import os
import resource
import statistics
import subprocess
import threading
import time

from browser import Browser
from common import BRIDGE, REPO, WORK, free_port, row, wait

NODES = int(os.environ.get("BENCH_PAGE_NODES", "10000"))
# Written by `cargo build --profile fast -p sampan-scale`; ./scripts/bench does it.
SWARM = os.environ.get("SAMPAN_SWARM", f"{REPO}/target/fast/swarm")
STATE = f"{WORK}/page"
# How often the page is opened, and each filter typed.
LOADS, TURNS = 10, 4
FILTERS = ["1", "-09", "is:up", "kubernetes.io/arch=arm64", "nothing has this"]
# Seconds until all nodes are connected, and of rest after that.
PATIENCE, REST = 900, 30
# Milliseconds until something is drawn, and until all rows are there.
OPENED = """(async () => {
    const first = (name) => performance.getEntriesByName(name)[0]?.startTime;
    const isWhole = () => first('rows') && first('first-contentful-paint') && document.getElementById('table').ariaRowCount === '%d';
    while (!isWhole()) await new Promise((done) => { setTimeout(done, 50); });
    return [first('first-contentful-paint'), first('rows')];
})()"""
# Milliseconds from a key in the filter until the frame after it is drawn.
TYPED = """(async () => {
    const [box, took] = [document.getElementById('search'), []];
    const drawn = () => new Promise((done) => { requestAnimationFrame(() => { setTimeout(done); }); });
    for (const text of %s) {
        await drawn();
        const begun = performance.now();
        box.value = text;
        box.dispatchEvent(new Event('input'));
        await drawn();
        took.push(performance.now() - begun);
    }
    return took;
})()"""


class Site:
    """A bridge with its page, and simulated nodes."""

    def __init__(self):
        self.log = open(f"{WORK}/page.log", "ab")
        self.link, self.api, self.page = free_port(), free_port(), free_port()
        self.bridge = self.swarm = None

    def start(self):
        # One for each node, in the bridge and in the simulation.
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        if hard < NODES + 500:
            raise SystemExit(f"bench: {NODES} nodes need more descriptors than the {hard} that this host gives (ulimit -Hn)")
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        self.bridge = subprocess.Popen([
            BRIDGE, "standalone", "--state", STATE, "--listen", f"127.0.0.1:{self.link}", "--api-listen", f"127.0.0.1:{self.api}",
            "--page", f"127.0.0.1:{self.page}", "--deleted-nodes-return", "--log-level", "warn",
        ], stdout=self.log, stderr=self.log)
        wait(20, "the kubeconfig is there", lambda: os.path.exists(f"{STATE}/kubeconfig"))
        self.swarm = subprocess.Popen([
            SWARM, "--link", f"127.0.0.1:{self.link}", "--ca", f"{STATE}/pki/ca.crt", "--ca-key", f"{STATE}/pki/ca.key",
            "--kubeconfig", f"{STATE}/kubeconfig", "--pid", str(self.bridge.pid), "--nodes", str(NODES), "--idle", "1000000",
        ], stdout=subprocess.PIPE, stderr=self.log, text=True)
        late = threading.Timer(PATIENCE, self.swarm.kill)
        late.start()
        try:
            if not any(line.startswith("first connect") for line in self.swarm.stdout):
                raise SystemExit(f"bench: {NODES} simulated nodes did not connect")
        finally:
            late.cancel()

    def login_link(self):
        command = [BRIDGE, "page", "--state", STATE, "--url", f"https://127.0.0.1:{self.page}"]
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.split("\n", 1)[0]

    def stop(self):
        for process in (self.swarm, self.bridge):
            if process:
                process.kill()
                process.wait()


def measure():
    site = Site()
    try:
        site.start()
        time.sleep(REST)
        browser = Browser(f"{WORK}/chromium")
        try:
            browser.open()
            look(browser, site)
        finally:
            browser.stop()
    finally:
        site.stop()


def look(browser, site):
    link = site.login_link()
    browser.go(link)
    wait(30, "the login link opens the page", lambda: has_opened(browser))
    opened = [load(browser, link.split("#")[0]) for _ in range(LOADS)]
    what = f"page with {NODES:,} nodes in Chromium"
    row(f"{what}: first paint, median of {LOADS}", statistics.median(painted for painted, _ in opened), "ms", 300)
    row(f"{what}: all rows, median of {LOADS}", statistics.median(rows for _, rows in opened), "ms")
    took = [one for _ in range(TURNS) for one in browser.value(TYPED % FILTERS)]
    row(f"{what}: key in the filter to the next frame, median of {len(took)}", statistics.median(took), "ms", 50)
    row(f"{what}: key in the filter to the next frame, the slowest", max(took), "ms")


def has_opened(browser):
    """A page that goes elsewhere meanwhile has no answer."""
    try:
        return browser.value("document.getElementById('table') !== null")
    except RuntimeError:
        return False


def load(browser, url):
    browser.go("about:blank")
    browser.go(url)
    return browser.value(OPENED % (NODES + 1))
