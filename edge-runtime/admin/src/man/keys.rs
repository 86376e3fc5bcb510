//! Every key of the configuration for people: its type and what it means. Defaults are the configuration's own.

/// One key, by its path.
pub(crate) struct Key {
    pub(crate) name: &'static str,
    /// What is written behind it.
    pub(crate) kind: &'static str,
    /// The default, if it depends on the machine or does not exist; empty: that of an empty configuration.
    pub(crate) default: &'static str,
    pub(crate) about: &'static str,
}

const fn key(name: &'static str, kind: &'static str, default: &'static str, about: &'static str) -> Key {
    Key { name, kind, default, about }
}

#[rustfmt::skip]
pub(crate) const KEYS: &[Key] = &[
    key("node-name", "NAME", "the name joined as, else that of the host", "name of the Node object; must equal the name joined as"),
    key("labels", "{NAME: VALUE}", "", "labels of the Node object"),
    key("taints", "[KEY=VALUE:EFFECT]", "", "taints of the Node object"),
    key("max-pods", "NUMBER", "", "maximum number of pods on this node"),
    key("reserved.cpu-millis", "NUMBER", "", "thousandths of a CPU subtracted from allocatable"),
    key("reserved.cpus", "LIST", "the lowest", "CPUs that no container has for itself, such as 0-1,4; as many are subtracted from allocatable at least"),
    key("reserved.memory-bytes", "BYTES", "", "memory subtracted from allocatable, beside the eviction threshold"),
    key("reserved.storage-bytes", "BYTES", "", "disk space subtracted from allocatable, beside the eviction threshold"),
    key("network.bridge", "NAME", "", "name of the bridge device of the pods' network"),
    key("network.subnet", "ADDRESS/LENGTH", "that of network.pod-cidrs", "short form of network.pod-cidrs for one IPv4 range"),
    key("network.pod-cidrs", "[ADDRESS/LENGTH]", "", "addresses of pods: one IPv4 range, one IPv6 range, or one of each"),
    key("network.cluster-dns", "[ADDRESS]", "the node itself", "name servers for dnsPolicy: ClusterFirst"),
    key("network.cluster-domain", "NAME", "cluster.local", "domain of Services for dnsPolicy: ClusterFirst"),
    key("network.mode", "auto|builtin|cni", "", "what connects pods: the built-in bridge, CNI plugins, or (auto) plugins if they are configured"),
    key("network.routes", "none|lan", "", "lan: pods of other nodes on the LAN are reachable at their addresses"),
    key("network.policies", "true|false", "", "enforce NetworkPolicies for pods on the built-in bridge"),
    key("network.cni.conf-dir", "DIR", "", "folder of CNI configurations"),
    key("network.cni.bin-dirs", "[DIR]", "", "folders of CNI plugins"),
    key("cgroup-parent", "PATH", "/sampan; with systemd's driver sampan.slice", "parent cgroup of all pods"),
    key("cgroup-driver", "cgroupfs|systemd", "", "what creates the cgroups of pods"),
    key("runtime.command", "PROGRAM", "", "the OCI runtime"),
    key("runtime.parallel", "NUMBER", "2 to 4, by the processors", "maximum number of calls of the OCI runtime at once"),
    key("runtime.request-timeout-seconds", "SECONDS", "", "timeout of one call of the OCI runtime; then it is killed"),
    key("logs.max-bytes", "BYTES", "", "size at which a container's log is rotated"),
    key("logs.max-files", "NUMBER", "", "number of log files kept for each container"),
    key("logs.bytes-per-second", "BYTES", "", "log rate limit of each container, with a burst of five minutes; 0: no limit"),
    key("metrics.listen", "ADDRESS:PORT", "not served", "address of health and metrics over plain HTTP, without authentication"),
    key("security.seccomp-default", "true|false", "", "containers without a seccomp profile get RuntimeDefault"),
    key("security.allowed-unsafe-sysctls", "[NAME]", "", "namespaced sysctls beyond the safe ones; a name may end in *"),
    key("security.pod-pids-limit", "NUMBER", "no limit", "maximum number of processes and threads of one pod"),
    key("security.secrets-in-memory", "true|false", "", "bodies of Secrets are never written to the disk"),
    key("resources.swap", "none|limited|unlimited", "", "swap that pods may use"),
    key("resources.without-memory-controller", "warn|refuse", "", "refuse: a pod with a memory limit fails where the kernel cannot enforce it"),
    key("resources.cpu-manager", "none|static", "", "static: containers of Guaranteed pods that request whole CPUs have them for themselves"),
    key("devices", "{DOMAIN/NAME: PATHS}", "", "devices of the board as resources: a list of paths, or paths, share and access"),
    key("device-twin", "MAPPING", "none", "sensors and actuators in the API; see the page about devices"),
    key("runtimes", "{NAME: {command: PROGRAM, args: [ARG]}}", "", "more OCI runtimes, by the handler of a RuntimeClass"),
    key("registry", "[{host: NAME, ...}]", "", "registries: host, mirrors, plain-http, insecure, ca, auth-file"),
    key("eviction.hard", "{SIGNAL: VALUE}", "memory.available: a twentieth of the memory, 100Mi at most; nodefs.available: 10%; imagefs.available: 15%; nodefs.inodesFree, imagefs.inodesFree: 5%", "thresholds as the kubelet's evictionHard; '0' switches one off"),
    key("eviction.pressure-transition-seconds", "SECONDS", "", "how long a pressure condition stays after the pressure has ended"),
    key("images.gc-high-percent", "PERCENT", "", "disk use at which the removal of unused images starts; 100: never"),
    key("images.gc-low-percent", "PERCENT", "", "disk use at which that removal stops"),
    key("images.gc-min-age-seconds", "SECONDS", "", "minimum age of an image to remove"),
    key("images.pinned", "[IMAGE]", "", "images that are never removed"),
    key("pull.bytes-per-second", "BYTES", "no limit", "bandwidth limit of pulls"),
    key("pull.window", "HH:MM-HH:MM", "always", "time of day for pulls, in UTC"),
    key("pull.images", "[IMAGE]", "", "images to pull before a pod needs them; never removed"),
    key("pull.auth-file", "FILE", "none", "docker config JSON for all registries; pull secrets come first"),
    key("proxy.url", "http://HOST:PORT", "none", "HTTP proxy of the link to the bridge and of pulls, which opens tunnels by CONNECT"),
    key("proxy.user-file", "FILE", "none", "login at the proxy: one line NAME:PASSWORD"),
    key("proxy.except", "[HOST|HOST:PORT|.SUFFIX|ADDRESS/LENGTH]", "", "hosts that are reached without the proxy"),
    key("proxy.for", "[link|pull]", "", "what uses the proxy"),
    key("services.enabled", "true|false", "", "serve Services on this node"),
    key("services.dns", "true|false", "", "answer DNS queries for names of Services"),
    key("services.node-port-addresses", "[ADDRESS/LENGTH]", "", "addresses at which node ports are served, or [primary]; none: all but loopback"),
    key("shutdown.grace-seconds", "SECONDS", "", "time for pods to end when the machine shuts down"),
    key("shutdown.critical-grace-seconds", "SECONDS", "", "time for critical pods after that"),
    key("shutdown.pods", "resume|fail", "", "resume: pods go on at the next boot; fail: they end as Failed"),
    key("upgrade.keys", "[BASE64]", "", "Ed25519 public keys; with any, another version of the programs must be signed"),
    key("upgrade.trial-seconds", "SECONDS", "", "length of the trial of another version"),
];
