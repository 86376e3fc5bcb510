"""Asks the local API without a pause, in a pod: `api_flood.py THREADS GO` lists ConfigMaps of the pod's namespace in so many
threads while the file GO exists. Says each second how many lists were answered and refused so far."""
import collections
import http.client
import os
import ssl
import sys
import threading
import time

SECRETS = "/var/run/secrets/kubernetes.io/serviceaccount"
# Between two looks for the file.
LOOK = 0.1


def read(name):
    with open(f"{SECRETS}/{name}") as file:
        return file.read().strip()


def connect():
    host, port = (os.environ[f"KUBERNETES_SERVICE_{what}"] for what in ("HOST", "PORT"))
    return http.client.HTTPSConnection(host, int(port), timeout=30, context=ssl.create_default_context(cadata=read("ca.crt")))


def ask(counted, goes):
    connection, path = connect(), f"/api/v1/namespaces/{read('namespace')}/configmaps"
    headers = {"Authorization": f"Bearer {read('token')}", "Accept": "application/json"}
    while goes.wait():
        try:
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            answer.read()
            counted["answered" if answer.status == 200 else "refused"] += 1
        except (OSError, http.client.HTTPException):
            counted["refused"] += 1
            # Opened again with the next request.
            connection.close()
            time.sleep(LOOK)


def main(threads, file):
    goes, counted = threading.Event(), [collections.Counter() for _ in range(threads)]
    for one in counted:
        threading.Thread(target=ask, args=(one, goes), daemon=True).start()
    while True:
        for _ in range(10):
            (goes.set if os.path.exists(file) else goes.clear)()
            time.sleep(LOOK)
        print("answered", sum(one["answered"] for one in counted), "refused", sum(one["refused"] for one in counted), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
