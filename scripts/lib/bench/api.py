"""The embedded API as the administrator sees it."""
import base64
import http.client
import json
import re
import ssl
import tempfile
import threading
import time

from common import IMAGE, wait
from news import tell

SLEEP = ("/bin/sleep", "1000000")


def pod_spec(command=SLEEP, **container):
    container |= {"name": "c", "image": IMAGE, "imagePullPolicy": "Never", "command": list(command)}
    return {"terminationGracePeriodSeconds": 0, "automountServiceAccountToken": False, "containers": [container]}


def credential(config, name):
    """What a kubeconfig holds under `name`: as data, or the file that it names."""
    data = re.search(rf'\b{name}-data"?: "?([A-Za-z0-9+/=]+)', config)
    return base64.b64decode(data[1]) if data else open(re.search(rf'\b{name}"?: "?([^\s",}}]+)', config)[1], "rb").read()


class Api:
    """One connection to the API as the administrator, and a watch on pods."""

    def __init__(self, port, kubeconfig):
        config = open(kubeconfig).read()
        self.context = ssl.create_default_context(cadata=credential(config, "certificate-authority").decode())
        with tempfile.NamedTemporaryFile("wb", suffix=".pem") as pem:
            pem.write(credential(config, "client-certificate") + b"\n" + credential(config, "client-key"))
            pem.flush()
            self.context.load_cert_chain(pem.name)
        self.port = port
        self.one = self.connect()
        self.seen, self.ready, self.gone = {}, {}, {}

    def connect(self):
        return http.client.HTTPSConnection("127.0.0.1", self.port, context=self.context)

    def call(self, method, path, body=None):
        ask = lambda: self.one.request(method, path, body and json.dumps(body), {"Content-Type": "application/json", "Accept": "application/json"})
        try:
            ask()
            answer = self.one.getresponse()
        except (http.client.RemoteDisconnected, OSError):
            # Closed after a time without requests.
            self.one.close()
            ask()
            answer = self.one.getresponse()
        data = json.loads(answer.read() or b"{}")
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path}: {answer.status} {data.get('message')}")
        return data

    def watch(self):
        version = self.call("GET", "/api/v1/pods?limit=1")["metadata"]["resourceVersion"]
        connection = self.connect()
        connection.request("GET", f"/api/v1/pods?watch=1&resourceVersion={version}", headers={"Accept": "application/json"})
        answer = connection.getresponse()

        def follow():
            try:
                while line := answer.readline():
                    take(time.monotonic(), json.loads(line))
            except (http.client.HTTPException, OSError, ValueError):
                pass  # The bridge was stopped.

        def take(now, event):
            name = event["object"]["metadata"].get("name")
            self.seen.setdefault(name, now)
            if event["type"] == "DELETED":
                self.gone[name] = now
            elif any(c["type"] == "Ready" and c["status"] == "True" for c in event["object"].get("status", {}).get("conditions", [])):
                self.ready.setdefault(name, now)
            tell()

        threading.Thread(target=follow, daemon=True).start()

    def serves(self, path):
        """Whether the API has these objects: another build may lack them."""
        try:
            return bool(self.call("GET", f"{path}?limit=1"))
        except RuntimeError:
            return False

    def pod(self, name, command=SLEEP, labels=None, spec=None, annotations=None, **container):
        """Creates a pod of one container, with `spec` beside it; returns the moment of the request."""
        spec = {"nodeName": "edge-1"} | pod_spec(command, **container) | (spec or {})
        began = time.monotonic()
        metadata = {"name": name, "labels": labels or {}, "annotations": annotations or {}}
        self.call("POST", "/api/v1/namespaces/default/pods", {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
        return began

    def deployment(self, name, replicas, **container):
        """Creates a Deployment of such pods; the moment it was asked for."""
        labels = {"app": name}
        template = {"metadata": {"labels": labels}, "spec": pod_spec(**container)}
        began = time.monotonic()
        self.call("POST", "/apis/apps/v1/namespaces/default/deployments", {
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
            "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template},
        })
        return began

    def started(self, *names, limit=60):
        wait(limit, f"Ready: {names}", lambda: all(name in self.ready for name in names))

    def delete(self, names):
        for name in names:
            self.call("DELETE", f"/api/v1/namespaces/default/pods/{name}")
        wait(60, "pods are deleted", lambda: all(name in self.gone for name in names))
        for name in names:
            self.forget(name)

    def clear(self):
        """Deletes every pod, also one that never started."""
        path = "/api/v1/namespaces/default/pods"
        self.call("DELETE", f"{path}?gracePeriodSeconds=0")
        wait(60, "pods are deleted", lambda: not self.call("GET", path)["items"])
        self.seen, self.ready, self.gone = {}, {}, {}

    def forget(self, name):
        self.seen.pop(name, None), self.ready.pop(name, None), self.gone.pop(name, None)
