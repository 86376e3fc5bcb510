//! Error messages of a wrong configuration.

use super::*;

fn load(text: &str) -> Result<Config, ConfigError> {
    let file = Path::new("/etc/edge-runtime/config.yaml");
    let overrides = Overrides { node_name: Some("edge-1".into()), joined: None };
    Config::from_file(ConfigFile::parse(text, file)?, file, Path::new("/"), &overrides)
}

#[test]
fn empty_file_gives_the_defaults_of_a_board() {
    let config = load("").expect("an empty file is valid");
    assert_eq!(config.network.bridge, "sampan0");
    assert_eq!(config.network.subnets, ["10.85.0.0/24".parse().expect("a subnet")]);
    assert_eq!(config.max_pods, 110);
    assert_eq!(*config.logs.max_bytes, 10 << 20);
    assert_eq!(config.logs.bytes_per_second(), Some(32_768));
}

#[test]
fn pipe_is_no_configuration() {
    let folder = tempfile::tempdir().expect("temp dir");
    let file = folder.path().join("config.yaml");
    nix::unistd::mkfifo(&file, nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
    let errors = [ConfigFile::read(&file).map(drop), ConfigFile::read_lenient(&file).map(drop)];
    for error in errors.map(|read| read.expect_err("it is refused").to_string()) {
        assert!(error.contains("config.yaml") && error.contains("this is a pipe"), "{error}");
    }
}

#[test]
fn unknown_key_is_named_with_its_line() {
    let error = load("max-pods: 3\nmax-podz: 4\n").expect_err("unknown key").to_string();
    assert!(error.contains("max-podz") && error.contains("config.yaml") && error.contains("line 2"), "{error}");
}

#[test]
fn wrong_values_name_their_key() {
    for (text, key) in [
        ("network: {subnet: 10.0.0.1/24}", "network.subnet"),
        ("network: {pod-cidrs: [10.0.0.0/24, 10.0.1.0/24]}", "network.pod-cidrs"),
        ("network: {pod-cidrs: []}", "network.pod-cidrs"),
        ("network: {pod-cidrs: [10.0.0.0/24], subnet: 10.0.0.0/24}", "network.subnet"),
        ("network: {bridge: a-name-that-is-too-long}", "network.bridge"),
        ("taints: [a=b]", "taints"),
        ("taints: ['a=two words:NoSchedule']", "taints"),
        ("taints: ['a b:NoExecute']", "taints"),
        ("taints: ['a=b:NoSchedule', 'a=c:NoSchedule']", "taints"),
        ("max-pods: 0", "max-pods"),
        ("cgroup-parent: x", "cgroup-parent"),
        ("cgroup-driver: systemdd", "cgroup-driver: unknown variant `systemdd`, expected `cgroupfs` or `systemd`"),
        ("cgroup-driver: systemd\ncgroup-parent: /a b", "cgroup-parent"),
        ("services: {node-port-addresses: [primary, 10.0.0.0/8]}", "services.node-port-addresses"),
        ("services: {node-port-addresses: [10.0.0.1]}", "services.node-port-addresses"),
        ("local-api: {listen: 0.0.0.0}", "local-api.listen: unknown variant `0.0.0.0`, expected `none` or `gateway`"),
        ("local-api: {default: true}", "local-api.default: there is no local API: set local-api.listen: gateway, too"),
        (
            "local-api: {listen: gateway, cache-bytes: 1000}",
            "local-api.cache-bytes: 1000 is neither 0 nor between 65536",
        ),
        ("local-api: {listen: gateway, cache-bytes: 1073741825}", "local-api.cache-bytes"),
        ("local-api: {listen: gateway, cache-bytes: -1}", "local-api.cache-bytes"),
        ("local-api: {port: 6443}", "local-api: unknown field `port`"),
        ("security: {allowed-unsafe-sysctls: [vm.swappiness]}", "security.allowed-unsafe-sysctls"),
        ("devices: {gpio: [/dev/gpiochip0]}", "devices.gpio"),
        ("devices: {a.b/c: [/etc/passwd]}", "devices.a.b/c"),
        ("runtimes: {Crun: {command: crun}}", "runtimes.Crun"),
        ("resources: {swap: some}", "swap"),
        (
            "resources: {cpu-manager: static}",
            "resources.cpu-manager: static needs CPUs for the system: set reserved.cpus",
        ),
        ("plugins: {root: kubelet}", "plugins.root: \"kubelet\" is no absolute path of a folder without '..'"),
        ("plugins: {cdi-folders: [/etc/../x]}", "plugins.cdi-folders"),
        ("plugins: {csi-controllers: {d.x: /run/docker.sock}}", "plugins.csi-controllers"),
        ("plugins: {csi-controllers: {d.x: /var/lib/kubelet}}", "is not a path below plugins.root"),
        ("plugins: {csi-controllers: {d.x: /var/lib/kubelet/../x}}", "plugins.csi-controllers"),
        ("plugins: {root: /srv, csi-controllers: {d.x: /var/lib/kubelet/a}}", "plugins.csi-controllers"),
        ("plugins: {device-plugin: true}", "device-plugin"),
        ("resources: {cpu-manager: dynamic}", "expected `none` or `static`"),
        ("reserved: {cpus: 1-}", "reserved.cpus: '1-' is not a list of CPUs"),
        ("reserved: {cpus: [0, 1]}", "reserved.cpus: '[0,1]' is not a list of CPUs"),
        ("reserved: {cpus: ''}", "reserved.cpus"),
        ("reserved: {cpus: 5000}", "reserved.cpus"),
        ("security: {pod-pids-limit: 0}", "security.pod-pids-limit"),
        ("eviction: {hard: {memory.free: 5%}}", "eviction.hard.memory.free"),
        ("eviction: {hard: {memory.available: lots}}", "eviction.hard.memory.available"),
        ("images: {gc-high-percent: 101}", "images.gc-high-percent"),
        ("images: {gc-high-percent: 50, gc-low-percent: 50}", "images.gc-low-percent"),
        ("images: {pinned: ['UPPER']}", "images.pinned"),
        ("pull: {window: always}", "pull.window"),
        ("pull: {bytes-per-second: 5}", "pull.bytes-per-second"),
        ("pull: {images: ['a b']}", "pull.images"),
        ("proxy: {url: 'https://proxy.lan:3128'}", "proxy: the address of a proxy must be http://HOST:PORT"),
        ("proxy: {except: ['*.lan']}", "proxy.except"),
        ("proxy: {for: [links]}", "proxy.for"),
        ("logs: {bytes-per-second: 5}", "logs.bytes-per-second"),
        ("shutdown: {pods: stay}", "shutdown"),
    ] {
        let error = load(text).expect_err(text).to_string();
        assert!(error.contains(key), "{text}: {error}");
    }
}

#[test]
fn reserved_cpus_are_not_allocatable() {
    for (text, cpus, milli) in [
        ("", None, 4000),
        ("reserved: {cpus: 0}", Some("0"), 3000),
        ("reserved: {cpus: '0'}", Some("0"), 3000),
        ("reserved: {cpus: 0-1}", Some("0-1"), 2000),
        ("reserved: {cpus: '0,2-3', cpu-millis: 500}", Some("0,2-3"), 1000),
        ("reserved: {cpus: 3, cpu-millis: 1500}", Some("3"), 2500),
        ("reserved: {cpu-millis: 500}\nresources: {cpu-manager: static}", None, 3500),
    ] {
        let config = load(text).expect(text);
        let (told, left) = (config.reserved_cpus.map(|cpus| cpus.to_string()), config.allocatable_cpu_milli(4));
        assert_eq!((told.as_deref(), left), (cpus, milli), "{text}");
    }
}

#[test]
fn a_key_without_a_value_is_not_set() {
    let text = "max-pods:\nlogs:\n  max-files:\n  max-bytes: 8192\nreserved: {cpu-millis: , cpus: }\nregistry:\n- host: a\n  ca:\n\
                runtime:\n  command:\n  parallel:\n  request-timeout-seconds:\nnetwork: {cni: {bin-dirs: , conf-dir: }}\n\
                images: {gc-high-percent: , gc-min-age-seconds: }\nshutdown: {grace-seconds: }\n\
                eviction: {pressure-transition-seconds: }\ndevices: {a.b/c: {paths: [/dev/x], share: , access: }}\n\
                labels:\n  node-role.kubernetes.io/edge:\n  release: 22.10\n";
    let config = load(text).expect("valid");
    let defaults = load("").expect("valid");
    assert_eq!((config.max_pods, *config.logs.max_files, *config.logs.max_bytes), (110, 5, 8192));
    assert_eq!((config.runtime.command(), *config.runtime.request_timeout_seconds), (Path::new("runc"), 120));
    assert_eq!((config.runtime.parallel(), *config.reserved.cpu_millis), (defaults.runtime.parallel(), 0));
    assert_eq!(config.network.cni_bin_dirs, defaults.network.cni_bin_dirs);
    assert_eq!((*config.images.gc_high_percent, *config.images.gc_min_age_seconds), (85, 120));
    assert_eq!((*config.shutdown.grace_seconds, config.eviction.transition), (20, defaults.eviction.transition));
    assert_eq!((*config.devices["a.b/c"].share, config.devices["a.b/c"].access.as_str()), (1, "rw"));
    let labels: Vec<_> = config.labels.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(labels, [("node-role.kubernetes.io/edge", ""), ("release", "22.10")]);
    assert!(load("max-podz:\n").is_err(), "an unknown one is told all the same");
}

#[test]
fn two_roots_share_nothing() {
    let at = |root: &str| {
        let overrides = Overrides { joined: Some("n".into()), ..Overrides::default() };
        Config::from_file(ConfigFile::default(), Path::new("x"), Path::new(root), &overrides).expect("valid")
    };
    let (one, two) = (at("/srv/one"), at("/srv/two"));
    assert_ne!(one.network.bridge, two.network.bridge);
    assert_ne!(one.network.subnets, two.network.subnets);
    assert_ne!(one.cgroup_parent, two.cgroup_parent);
}

#[test]
fn pods_can_have_both_families() {
    let config = load("network: {pod-cidrs: [10.0.0.0/24, 'fd00::/64']}").expect("valid");
    let families: Vec<bool> = config.network.subnets.iter().map(|subnet| subnet.is_ipv4()).collect();
    assert_eq!(families, [true, false]);
}

#[test]
fn keys_of_another_version_are_left_out_of_a_node_that_has_to_run() {
    let file = Path::new("/etc/edge-runtime/config.yaml");
    let text = "max-podz: 4\nmax-pods: 3\nlogs: {max-files: 3, colour: red}\nregistry:\n- host: a.b\n  speed: 3\n\
                network:\n  bridge: br7\n  cni: {more: [1]}\nruntimes: {a: {command: crun, colour: red}}\nnew: {a: {b: 1}}\n";
    assert!(load(text).is_err(), "whoever checks a configuration is told");
    let (parsed, left_out) = ConfigFile::parse_lenient(text.to_owned(), file).expect("runs");
    assert_eq!((parsed.max_pods, *parsed.logs.max_files), (Some(3), 3));
    assert_eq!((parsed.network.bridge.as_deref(), parsed.registry.len(), parsed.runtimes.len()), (Some("br7"), 1, 1));
    for key in ["max-podz", "colour", "speed", "more", "`new`"] {
        assert!(left_out.iter().any(|said| said.contains(key) && said.contains("config.yaml")), "{key}: {left_out:?}");
    }
    assert_eq!(left_out.len(), 6, "{left_out:?}");
    // A wrong value is not treated as an unknown key.
    assert!(ConfigFile::parse_lenient("max-pods: many\nnew: 1\n".to_owned(), file).is_err());
    assert!(ConfigFile::parse_lenient("[unknown field `a`".to_owned(), file).is_err());
}

#[test]
fn label_that_a_node_may_not_have_is_left_out() {
    let file = Path::new("/etc/edge-runtime/config.yaml");
    let text = "labels: {node-role.kubernetes.io/worker: '', line: one, site: Halle 7}\n";
    let error = load(text).expect_err("print-config refuses it").to_string();
    assert!(error.contains("key labels") && error.contains("node-role.kubernetes.io/worker"), "{error}");
    let (parsed, left_out) = ConfigFile::parse_lenient(text.to_owned(), file).expect("the node runs");
    assert_eq!(parsed.labels.keys().collect::<Vec<_>>(), ["line"]);
    for label in ["node-role.kubernetes.io/worker", "Halle 7"] {
        assert!(left_out.iter().any(|said| said.contains(label) && said.contains("config.yaml")), "{left_out:?}");
    }
}

#[test]
fn taint_that_the_api_refuses_is_left_out() {
    let file = Path::new("/etc/edge-runtime/config.yaml");
    let text = "taints: ['line=Halle 7:NoExecute', 'a=b:NoSchedule', 'a=c:NoSchedule', 'a:NoExecute', d]\n";
    let (parsed, left_out) = ConfigFile::parse_lenient(text.to_owned(), file).expect("the node runs and registers");
    assert_eq!(parsed.taints, ["a=b:NoSchedule", "a:NoExecute"]);
    for (said, part) in left_out.iter().zip(["Halle 7", "a has two taints with effect NoSchedule", "'d'"]) {
        assert!(said.contains(part) && said.contains("config.yaml, key taints"), "{said}");
    }
    assert_eq!(left_out.len(), 3, "{left_out:?}");
}

#[test]
fn plugins_are_off_unless_configured() {
    let plugins = |text: &str| load(text).expect(text).plugins;
    assert!(!plugins("").is_on());
    assert!(!plugins("plugins: {root: /srv/kubelet}").is_on());
    assert!(plugins("plugins: {device-plugins: true}").is_on());
    assert!(plugins("plugins: {pod-resources: true}").is_on());
    assert!(plugins("plugins: {csi: true}").is_on());
    assert!(plugins("plugins: {csi-controllers: {d.x: /var/lib/kubelet/plugins/d.x/csi.sock}}").is_on());
    let config = load("plugins: {device-plugins: true}\ndevices: {a.b/d: [/dev/x], a.b/c: [/dev/y]}").expect("valid");
    let settings = config.plugins.settings(&config.devices);
    assert_eq!(settings.root, Path::new("/var/lib/kubelet"));
    assert_eq!(settings.cdi_folders, [Path::new("/etc/cdi"), Path::new("/var/run/cdi")]);
    assert_eq!(settings.taken, ["a.b/c", "a.b/d"], "a plugin cannot register these");
}
