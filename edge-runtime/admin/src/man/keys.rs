//! Every key of the configuration for people: its type and what it means. Defaults are the configuration's own.

/// One key, by its path.
pub(super) struct Key {
    pub(super) name: &'static str,
    /// What is written behind it.
    pub(super) kind: &'static str,
    /// The default, if it depends on the machine or does not exist; empty: that of an empty configuration.
    pub(super) default: &'static str,
    pub(super) about: &'static str,
}

const fn key(name: &'static str, kind: &'static str, default: &'static str, about: &'static str) -> Key {
    Key { name, kind, default, about }
}

#[rustfmt::skip]
pub(super) const KEYS: &[Key] = &[
    key("node-name", "NAME", "the name joined as, else that of the host", "name of the Node object; must equal the name joined as"),
    key("labels", "{NAME: VALUE}", "", "labels of the Node object"),
    key("taints", "[KEY=VALUE:EFFECT]", "", "taints of the Node object"),
    key("max-pods", "NUMBER", "", "most pods on this node"),
    key("reserved.cpu-millis", "NUMBER", "", "thousandths of a processor kept back from what pods may ask for"),
    key("reserved.memory-bytes", "BYTES", "", "memory kept back, beside the eviction threshold"),
    key("reserved.storage-bytes", "BYTES", "", "room on the disk kept back, beside the eviction threshold"),
    key("network.bridge", "NAME", "", "the network device that pods are connected to"),
    key("network.subnet", "ADDRESS/LENGTH", "that of network.pod-cidrs", "in the place of network.pod-cidrs, where there is IPv4 alone"),
    key("network.pod-cidrs", "[ADDRESS/LENGTH]", "", "addresses of pods: a range of IPv4, of IPv6 or one of each"),
    key("network.cluster-dns", "[ADDRESS]", "the node itself", "name servers for dnsPolicy: ClusterFirst"),
    key("network.cluster-domain", "NAME", "cluster.local", "domain of Services for dnsPolicy: ClusterFirst"),
    key("network.mode", "auto|builtin|cni", "", "who connects pods: the built-in bridge, CNI plugins, or those if they are configured"),
    key("network.routes", "none|lan", "", "lan: pods of the other nodes of the LAN are reached at their addresses"),
    key("network.policies", "true|false", "", "whether NetworkPolicies hold for pods on the built-in bridge"),
    key("network.cni.conf-dir", "DIR", "", "where CNI plugins are configured"),
    key("network.cni.bin-dirs", "[DIR]", "", "where CNI plugins are"),
    key("cgroup-parent", "PATH", "/sampan; with systemd's driver sampan.slice", "the cgroup of all pods"),
    key("cgroup-driver", "cgroupfs|systemd", "", "who makes the cgroups of pods"),
    key("runtime.command", "PROGRAM", "", "the OCI runtime"),
    key("runtime.parallel", "NUMBER", "2 to 4, by the processors", "how many of it run at once"),
    key("runtime.request-timeout-seconds", "SECONDS", "", "how long the OCI runtime may take for one thing; then it is killed"),
    key("logs.max-bytes", "BYTES", "", "size at which a log of a container is rotated"),
    key("logs.max-files", "NUMBER", "", "files of each container's log"),
    key("logs.bytes-per-second", "BYTES", "", "what one container may log, five minutes' worth of it at once; 0: no limit"),
    key("metrics.listen", "ADDRESS:PORT", "nowhere", "health and metrics over plain HTTP, for whoever reaches it"),
    key("security.seccomp-default", "true|false", "", "containers without a seccomp profile get RuntimeDefault"),
    key("security.allowed-unsafe-sysctls", "[NAME]", "", "namespaced sysctls beyond the safe ones; a name may end in *"),
    key("security.pod-pids-limit", "NUMBER", "no limit", "most processes and threads of one pod"),
    key("security.secrets-in-memory", "true|false", "", "bodies of Secrets are never written to the disk"),
    key("resources.swap", "none|limited|unlimited", "", "what pods may use of swap"),
    key("resources.without-memory-controller", "warn|refuse", "", "refuse: a pod with a memory limit fails where the kernel cannot enforce it"),
    key("devices", "{DOMAIN/NAME: PATHS}", "", "devices of the board as resources: a list of paths, or paths, share and access"),
    key("device-twin", "MAPPING", "none", "sensors and actuators in the API, as the document about devices has it"),
    key("runtimes", "{NAME: {command: PROGRAM, args: [ARG]}}", "", "more OCI runtimes, by the handler of a RuntimeClass"),
    key("registry", "[{host: NAME, ...}]", "", "registries: host, mirrors, plain-http, insecure, ca, auth-file"),
    key("eviction.hard", "{SIGNAL: VALUE}", "memory.available: a twentieth of the memory, 100Mi at most; nodefs.available: 10%; imagefs.available: 15%; nodefs.inodesFree, imagefs.inodesFree: 5%", "thresholds as the kubelet's evictionHard; '0' switches one off"),
    key("eviction.pressure-transition-seconds", "SECONDS", "", "how long a pressure condition stays after it was last seen"),
    key("images.gc-high-percent", "PERCENT", "", "use of the disk at which unused images go; 100: never"),
    key("images.gc-low-percent", "PERCENT", "", "until when they go"),
    key("images.gc-min-age-seconds", "SECONDS", "", "younger images stay"),
    key("images.pinned", "[IMAGE]", "", "images that are never removed"),
    key("pull.bytes-per-second", "BYTES", "no limit", "of the link, for pulls"),
    key("pull.window", "HH:MM-HH:MM", "always", "time of day for pulls, in UTC"),
    key("pull.images", "[IMAGE]", "", "images to have before a pod asks for them; never removed"),
    key("pull.auth-file", "FILE", "none", "docker config JSON for all registries, behind pull secrets"),
    key("services.enabled", "true|false", "", "whether this node serves Services"),
    key("services.dns", "true|false", "", "whether it answers for their names"),
    key("services.node-port-addresses", "[ADDRESS/LENGTH]", "", "at which of its addresses it serves node ports, or [primary]; none: all but loopback"),
    key("shutdown.grace-seconds", "SECONDS", "", "for pods, when the machine goes down"),
    key("shutdown.critical-grace-seconds", "SECONDS", "", "and then for critical pods"),
    key("shutdown.pods", "resume|fail", "", "whether pods go on at the next boot, or end as Failed"),
    key("upgrade.keys", "[BASE64]", "", "Ed25519 public keys: with any, another version of the programs must be signed"),
    key("upgrade.trial-seconds", "SECONDS", "", "how long another version is on trial"),
];
