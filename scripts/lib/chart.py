#!/usr/bin/env python3
"""The chart of cloud-bridge by Helm's own library: chart.py lint|same|values|render|install...

lint: what `helm lint --strict` says. same: what it renders without values is what deploy/bridge has. values: each of them
shows, and wrong ones are refused. render FILE: all objects with everything switched on. install KUBECONFIG: into a cluster,
upgraded, and away again."""
import json
import subprocess
import sys

import helm_python
import yaml
from helm_python import Chart

CHART = "deploy/helm/cloud-bridge"
DEPLOY = ["deploy/bridge/rbac.yaml", "deploy/bridge/deployment.yaml"]
ENROLMENT = "deploy/bridge/enrolment.yaml"
NAMESPACE = "sampan-system"
# Without them it is not installed.
NEEDED = {"advertise": ["bridge.example.com"], "image": {"repository": "cloud-bridge"}}
EVERYTHING = {
    "replicas": 3,
    "advertise": ["a.example.com", "10.0.0.1"],
    "certificateLife": "90d",
    "kubelet": {"addressType": "ExternalIP", "lastPort": 12360},
    "rules": {"enabled": True},
    "csi": {"enabled": True},
    "page": {"enabled": True, "title": "Plant 1"},
    "metrics": {"enabled": True},
    "podMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "networkPolicy": {"enabled": True, "metricsFrom": [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}]},
    "service": {"type": "NodePort", "nodePort": 30443, "annotations": {"a": "b"}},
    "enrolment": {"enabled": True},
    "serviceAccount": {"annotations": {"c": "d"}},
    "image": {"repository": "registry.example.com/cloud-bridge", "digest": "sha256:" + "0a" * 32},
    "imagePullSecrets": [{"name": "pull"}],
    "logLevel": "debug",
    "extraArgs": ["--service-scope=cluster"],
    "tolerations": [{"operator": "Exists"}],
}


def rendered(values=None, namespace=NAMESPACE, name="cloud-bridge"):
    with Chart.load(CHART) as chart:
        files = chart.render({**NEEDED, **(values or {})}, name=name, namespace=namespace)
    objects = []
    for file, text in files.items():
        if not file.endswith(".txt"):
            objects += [one for one in yaml.safe_load_all(text) if one]
    return objects


def key(one):
    return one["kind"], one["metadata"].get("namespace"), one["metadata"]["name"]


def plain(one):
    """Without what only the chart says, or only the files: labels, the image, its policy."""
    one = json.loads(json.dumps(one))
    one["metadata"].pop("labels", None)
    if one["kind"] == "Deployment":
        spec = one["spec"]
        spec.pop("selector")
        spec["template"].pop("metadata")
        for container in spec["template"]["spec"]["containers"]:
            container.pop("image")
            container.pop("imagePullPolicy", None)
    if one["kind"] == "Service":
        one["spec"].pop("selector")
    return one


def find(objects, kind):
    (one,) = [one for one in objects if one["kind"] == kind]
    return one


def lint():
    said = helm_python.chart.lint(CHART, NEEDED, strict=True, namespace=NAMESPACE)
    # 1: information, as that a chart may have an icon.
    bad = [message for message in said["messages"] if message["severity"] > 1] + said["errors"]
    assert not bad, bad


def same():
    files = []
    for file in DEPLOY:
        with open(file) as text:
            files += [one for one in yaml.safe_load_all(text) if one["kind"] != "Namespace"]
    ours, theirs = ({key(one): plain(one) for one in objects} for objects in (rendered(), files))
    assert ours.keys() == theirs.keys(), f"{sorted(map(str, ours))}\n{sorted(map(str, theirs))}"
    for name, one in ours.items():
        assert one == theirs[name], f"{name}: the chart has\n{yaml.dump(one)}\ndeploy/bridge has\n{yaml.dump(theirs[name])}"


def values():
    objects = rendered(EVERYTHING)
    deployment, service = find(objects, "Deployment"), find(objects, "Service")
    pod = deployment["spec"]["template"]["spec"]
    container = pod["containers"][0]
    assert deployment["spec"]["replicas"] == 3 and deployment["spec"]["strategy"]["type"] == "RollingUpdate"
    assert container["image"] == "registry.example.com/cloud-bridge@sha256:" + "0a" * 32
    wanted = ["--advertise=a.example.com", "--advertise=10.0.0.1", "--certificate-life=90d", "--kubelet-address-type=ExternalIP"]
    wanted += ["--kubelet-ports=10360-12360", "--rules-listen=0.0.0.0:9444", "--csi-listen=0.0.0.0:9447", "--page=0.0.0.0:9445", "--page-title=Plant 1", "--health-listen=0.0.0.0:9442"]
    wanted += ["--metrics-listen=0.0.0.0:9443", "--log-level=debug", "--service-scope=cluster", "--replica-listen=0.0.0.0:9446"]
    assert all(word in container["args"] for word in wanted), container["args"]
    assert service["spec"]["type"] == "NodePort" and service["spec"]["ports"][0]["nodePort"] == 30443
    assert find(objects, "PodDisruptionBudget")["spec"]["maxUnavailable"] == 1
    assert find(objects, "PodMonitor")["metadata"]["labels"]["release"] == "prometheus"
    ports = [rule["ports"][0]["port"] for rule in find(objects, "NetworkPolicy")["spec"]["ingress"]]
    assert ports == ["link", 10360, "replicas", "rules", "csi", "page", "metrics"], ports
    assert container["livenessProbe"]["httpGet"]["port"] == "health", container
    assert [port["name"] for port in service["spec"]["ports"]] == ["link", "rules", "csi", "page"]
    with open(ENROLMENT) as text:
        rights = [key(one) for one in yaml.safe_load_all(text)]
    assert len(rights) == 4 and not set(rights) - {key(one) for one in objects}, rights
    # The authority and the tokens are in one namespace wherever the bridge runs.
    elsewhere = rendered(namespace="edge", name="east")
    assert find(elsewhere, "Role")["metadata"]["namespace"] == NAMESPACE
    assert find(elsewhere, "Namespace")["metadata"]["name"] == NAMESPACE
    assert find(elsewhere, "Deployment")["metadata"] ["name"] == "east-cloud-bridge"
    for binding in ("RoleBinding", "ClusterRoleBinding"):
        (subject,) = find(elsewhere, binding)["subjects"]
        assert (subject["namespace"], subject["name"]) == ("edge", "east-cloud-bridge"), subject
    assert not [one for one in rendered({"rbac": {"create": False}}) if "Role" in one["kind"]]
    alone = find(rendered(), "Deployment")["spec"]["template"]["spec"]["containers"][0]
    assert not [word for word in alone["args"] if "replica" in word], alone
    bare = find(rendered({"kubelet": {"enabled": False}}), "Deployment")["spec"]["template"]["spec"]
    assert "volumes" not in bare and not [word for word in bare["containers"][0]["args"] if "kubelet" in word]
    wrong = [{"replica": 2}, {"advertise": []}, {"service": {"type": "External"}}, {"image": {"repository": "a", "digest": "latest"}}]
    for bad in [*wrong, {"podMonitor": {"enabled": True}}, {"image": {"repository": ""}}]:
        try:
            rendered(bad)
        except helm_python.HelmError:
            continue
        raise AssertionError(f"taken: {bad}")


def render(path):
    with open(path, "w") as out:
        yaml.safe_dump_all([one for one in rendered(EVERYTHING) if one["kind"] != "PodMonitor"], out)


def install(kubeconfig):
    def there():
        kinds = "deploy,svc,sa,role,rolebinding,clusterrole,clusterrolebinding,pdb,networkpolicy"
        words = ["kubectl", "--kubeconfig", kubeconfig, "-n", NAMESPACE, "get", kinds, "-o", "name"]
        words += ["-l", "app.kubernetes.io/managed-by=Helm"]
        return subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout.split()

    with helm_python.Config(kubeconfig_path=kubeconfig, namespace=NAMESPACE) as config:
        with Chart.load(CHART) as chart:
            config.install(chart, name="cloud-bridge", values=NEEDED, create_namespace=True)
            assert len(there()) == 7, there()
            config.upgrade(chart, name="cloud-bridge", values={**NEEDED, "replicas": 2})
            assert len(there()) == 8, there()
        config.uninstall("cloud-bridge")
    assert there() == [], there()


verb, *words = sys.argv[1:]
{"lint": lint, "same": same, "values": values, "render": render, "install": install}[verb](*words)
print(f"{verb}: as it should be")
