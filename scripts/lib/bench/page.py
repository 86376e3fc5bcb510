"""docs/benchmarks.md and the table of the README, made of the rows of one run."""
import statistics

from figures import STEAL_LIMIT, all_shown, is_unreliable, limit, marks, ratio, shown, worst_steal

BEGIN, END = "<!-- Written by ./scripts/bench --write -->", "<!-- End -->"
EARLIER = " (earlier)"
GROUPS = {
    "bare": "Host and OCI runtime alone",
    "start": "Start of pods",
    "cold": "Power-on without a cloud",
    "growth": "Growth",
    "kinds": "Pods with volumes, ports, policies and Services",
    "memory": "Memory",
    "idle": "Idle",
    "probes": "Probes",
    "streams": "Streams",
    "services": "Services",
    "dns": "Names",
    "devices": "Devices",
    "local-api": "API for pods",
    "plugins": "Device plugins",
    "site": "Site without a cluster",
    "page": "Web page in a browser",
    "serve": "Bridge beside a cluster",
    "enrol": "Enrolment of boards",
    "slow-link": "Slow link",
    "sizes": "Sizes",
}
# What peers needed on a virtual machine with two cores, the rows of ours beside it, and earlier figures of ours and of bare runc,
# which stand until there are newer ones.
PEERS = [
    ("memory of the node's processes, idle (PSS)", "147 MB", "130 MB", ["node processes PSS, idle"], ["7.1 MB"], ""),
    ("the same after 50 pods", "", "", ["node processes PSS, idle after 50 pods"], ["7.2 MB"], ""),
    ("the same with 50 pods", "333 MB", "316 MB", ["node processes PSS, 50 pods"], ["11.1 MB"], ""),
    ("`create` to Ready, one pod, median", "1.00 s", "0.20 to 0.23 s", ["create -> Ready, serial, median of 20"], ["0.068 s"], "0.030 s"),
    ("50 pods at once, all Ready", "66.9 s", "7.6 s", ["50 pods at once, all Ready"], ["2.5 s"], "1.0 s"),
    ("50 pods running again after power-on, no cloud", "9.1 s", "never", ["cold start without cloud, 50 pods running"], ["2.1 s"], ""),
    ("static binary, aarch64", "100 MB + containerd", "84 MB + containerd", ["static binary, aarch64"], ["5.4 MB"], ""),
    ("bridge, idle: beside a cluster; with its own API", "77 MB", "", ["bridge without an API of its own: PSS, idle", "bridge PSS, idle, one node"], ["6.9 MB", "12.0 MB"], ""),
]
PEERS_FROM = """The figures of KubeEdge and kubelet, and those marked `earlier`, are from earlier runs on virtual machines with two cores:
Kubernetes 1.36, containerd 1.6, runc 1.1.5, busybox pods. Earlier times of ours were measured while bare runc was up to 50 % slower
than on other days (0.025 s; 0.75 s for 50)."""
# Rows of the table of the README, by their first column.
OF_README = [
    "memory of the node's processes, idle (PSS)",
    "the same with 50 pods",
    "`create` to Ready, one pod, median",
    "50 pods running again after power-on, no cloud",
    "static binary, aarch64",
]
BESIDE_KUBE_PROXY = "one endpoint changed in the API to rule in force, p50"
# Shown until a run has kube-proxy beside the node.
EARLIER_SERVICES = """
## Services and DNS beside kube-proxy and dnsmasq (earlier)

One earlier run on a virtual machine with two cores, with kube-proxy 1.36 (nftables mode) and dnsmasq:

| | here | compared with |
|---|---|---|
| memory (PSS) above `services: {enabled: false}`, 20 Services, DNS process included | 0.85 MB | |
| 1,000 Services of 10 endpoints: from the start to all rules in force | 0.67 s | kube-proxy 1.31 s |
| one endpoint changed in the API to the rule in force, median; 99th percentile | 48 ms; 75 ms | kube-proxy 385 ms; 493 ms |
| a local pod's readiness changed to the rule in force, median; 99th percentile | 25 ms; 34 ms | |
| a connection and a request through a ClusterIP | 379 µs | directly to the pod 376 µs |
| names of the cluster: questions a second at three quarters of a core; 99th percentile | 58,800; 0.21 ms | dnsmasq 59,800; 0.14 ms |
| a name while another pod asks 20,000 times a second, 99th percentile | 0.47 ms | without that 0.25 ms |
"""
INTRODUCTION = """# Benchmarks

Memory, CPU time, start-up time and size, compared with KubeEdge, kubelet and containerd, kube-proxy and dnsmasq.

`./scripts/bench --write` wrote this page from one run; do not edit it. `./scripts/bench --help` lists the suites.
Every figure of the README and of these pages that the benchmark measures comes from here.

"""
READING = f"""
## How to read the figures

- A figure with several values was measured once in each round. A round measures the bare OCI runtime and the node one
  after the other, so that both meet the same host. Budgets hold for the median.
- A multiple of bare is the median of the multiples of all rounds. Compare times of different machines by that column.
- **FAILED**: the row, or what should have measured it, failed in one of the rounds.
- **unreliable**: the hypervisor took more than {STEAL_LIMIT} % of the CPU time away in one of the rounds. Measure again.
- **OVER**: the median misses its budget. **slower**: every round is worse than the worst round of the build that it is
  compared with; with fewer than three rounds, worse by 5 %.
- CPU per pod is user and system time until two seconds after the last pod is Ready. The daemon's includes its helpers and
  the programs that it runs; the monitor's does not include the OCI runtime.
- `bare` is the same work without the node: the OCI runtime alone, a plain TCP copy, the peer that the row names. Beside a flood it is
  the same work without the flood.
"""


def median_of(rows, name, side="ours"):
    """The median of the row with this name as text, with a word if it is unreliable; None if it was not measured."""
    row = next((row for row in rows if row["name"] == name), None)
    if row is None or not row[side]:
        return None
    return f"{shown(statistics.median(row[side]))} {row['unit']}{' (unreliable)' if is_unreliable(row) else ''}"


def compared(rows):
    """The table of peers, Sampan and the bare runtime."""
    lines = ["| | KubeEdge | kubelet + containerd | Sampan | bare runtime |", "|---|---|---|---|---|"]
    for what, kubeedge, kubelet, names, earlier, earlier_bare in PEERS:
        measured = [median_of(rows, name) for name in names]
        ours = "; ".join(now or then + EARLIER for now, then in zip(measured, earlier))
        bare = median_of(rows, names[0], "bare") or ""
        # A multiple is one of the same run.
        if earlier_bare and not measured[0]:
            bare = earlier_bare + EARLIER
        lines.append(f"| {what} | {kubeedge} | {kubelet} | {ours} | {bare} |")
    return "\n".join(lines)


def summary(rows):
    """The table of the README: some rows of `compared`."""
    title, rule, *lines = compared(rows).split("\n")
    return "\n".join([title, rule, *(line for line in lines if line[2:].split(" | ")[0] in OF_README)])


def table(rows):
    """One line for each row of a suite; columns that no row uses are left out."""
    columns = [
        ("what", lambda row: row["name"]),
        ("rounds", lambda row: f"{all_shown(row['ours'])} {row['unit']}".strip()),
        ("median", lambda row: shown(statistics.median(row["ours"])) if len(row["ours"]) > 1 else ""),
        ("budget", limit),
        ("bare", lambda row: all_shown(row["bare"])),
        ("x bare", lambda row: f"{ratio(row):.2f}" if ratio(row) else ""),
        ("other build", lambda row: all_shown(row["against"])),
        ("steal, %", worst_steal),
        ("mark", lambda row: " ".join(f"**{mark}**" for mark in marks(row))),
    ]
    used = [(title, cell) for title, cell in columns if any(cell(row) for row in rows)]
    lines = ["| " + " | ".join(title for title, _ in used) + " |", "|" + "---|" * len(used)]
    lines += ["| " + " | ".join(cell(row).replace("|", "\\|") for _, cell in used) + " |" for row in rows]
    return "\n".join(lines)


def page(rows, facts):
    """The whole page."""
    where = "\n".join(f"| {what} | {value} |" for what, value in facts.items())
    parts = [INTRODUCTION, f"| | |\n|---|---|\n{where}\n" if facts else "This version has not been measured yet.\n"]
    parts.append(f"\n## Beside other nodes\n\n{PEERS_FROM}\n\n{compared(rows)}\n")
    for group, title in GROUPS.items():
        if found := [row for row in rows if row["group"] == group]:
            parts.append(f"\n## {title}\n\n{table(found)}\n")
    if not any(row["bare"] for row in rows if row["name"] == BESIDE_KUBE_PROXY):
        parts.append(EARLIER_SERVICES)
    return "".join([*parts, READING])


def replaced(text, inner):
    """`text` with `inner` between the two marks."""
    before, rest = text.split(BEGIN, 1)
    after = rest.split(END, 1)[1]
    return f"{before}{BEGIN}\n{inner}\n{END}{after}"


def write(repo, facts, rows, docs):
    """Writes target/bench/benchmarks.md; with `docs` the page of the documentation and the README's table, too."""
    text = page(rows, facts)
    paths = [f"{repo}/target/bench/benchmarks.md"] + ([f"{repo}/docs/benchmarks.md"] if docs else [])
    for path in paths:
        with open(path, "w") as out:
            out.write(text)
    if docs:
        with open(f"{repo}/README.md") as file:
            readme = replaced(file.read(), summary(rows))
        with open(f"{repo}/README.md", "w") as out:
            out.write(readme)
    print(f"written: {', '.join(paths)}", flush=True)
