//! What help, manual page and completion say of verbs beside their own texts: groups, and examples of each. Pure.

/// Groups of verbs, in the order of `--help`.
pub(crate) const GROUPS: &[(&str, &[&str])] = &[
    ("Start", &["join", "upgrade", "confirm", "reset"]),
    ("Look", &["status", "ps", "describe", "inspect", "top", "events", "logs", "doctor", "page"]),
    ("Work", &["exec", "restart", "release", "images", "pull", "import", "devices"]),
    ("Service", &["run", "config", "selftest", "completion", "version"]),
];

/// Examples of a verb: the words behind `edge-runtime`, and what they do.
type Examples = &'static [(&'static str, &'static str)];

const EXAMPLES: &[(&str, Examples)] = &[
    (
        "join",
        &[
            ("join -", "read the token from standard input: echo TOKEN | sudo edge-runtime join -"),
            ("join --token-file FILE --label site=north", "read it from a file, and set a label"),
        ],
    ),
    (
        "upgrade",
        &[
            ("upgrade edge-runtime_0.2.0_arm64.tar", "run another version on trial"),
            ("upgrade --back", "return to the version before"),
            ("upgrade --status -o json", "show the version in force"),
        ],
    ),
    ("confirm", &[("confirm", "approve the only job that waits"), ("confirm to-1-4", "approve this job")]),
    (
        "reset",
        &[
            ("reset", "end all containers and keep images, pods and identity"),
            ("reset --all", "uninstall: also delete images, volumes, logs and identity"),
            ("reset --all --dry-run", "print what would be deleted"),
        ],
    ),
    ("status", &[("status", "node, version, link and queue"), ("status -o json", "the same for scripts")]),
    (
        "ps",
        &[
            ("ps", "running containers"),
            ("ps --all -o wide", "ended ones too, with address and image"),
            ("ps -o name", "pods as NAMESPACE/NAME"),
        ],
    ),
    ("inspect", &[("inspect web", "the stored record"), ("inspect shop/web", "a pod of another namespace")]),
    ("describe", &[("describe web", "state, last end and events of a pod")]),
    ("restart", &[("restart web", "all containers of a pod"), ("restart shop/web -c app", "one container")]),
    ("release", &[("release shop/web", "one pod"), ("release --all", "all held pods of this node")]),
    (
        "config",
        &[
            ("config get", "the configuration with all defaults"),
            ("config get images.pinned", "one key"),
            ("config check new.yaml", "check a file before use"),
            ("config set logs.max-files 3", "change a key in the file"),
            ("config set images.pinned '[registry.example/app:2]'", "values are YAML"),
        ],
    ),
    ("top", &[("top", "refresh every 2 s; q ends"), ("top --once --sort memory", "print once")]),
    (
        "events",
        &[
            ("events --follow", "new events as they come"),
            ("events --for pod/web --tail 20", "the last events of a pod"),
        ],
    ),
    (
        "logs",
        &[
            ("logs web --tail 100 --follow", "the last lines, and new ones"),
            ("logs shop/web -c app --previous", "output of the attempt before this one"),
            ("logs web --all-containers", "all containers, one after the other"),
        ],
    ),
    (
        "doctor",
        &[
            ("doctor", "problems, and the commands that fix them"),
            ("doctor --bundle /tmp/report.tar.gz", "pack a report, with secrets redacted"),
        ],
    ),
    ("page", &[("page", "serve the page on a unix socket"), ("page --listen 127.0.0.1:8080", "on a port, too")]),
    ("exec", &[("exec web -- cat /etc/hosts", "run a command"), ("exec -it shop/web -c app -- sh", "open a shell")]),
    (
        "images",
        &[
            ("images", "list images"),
            ("images check", "read all layers"),
            ("images rm docker.io/library/nginx:1", "remove an image"),
            ("images prune --dry-run", "list images that no pod uses"),
            ("images export docker.io/library/nginx:1 nginx.tar", "write an image for import on another node"),
        ],
    ),
    (
        "pull",
        &[
            ("pull docker.io/library/nginx:1", "fetch an image"),
            ("pull registry.example/app:2 --auth /root/.docker/config.json", "with a login"),
        ],
    ),
    (
        "import",
        &[
            ("import app.tar", "import the output of docker save"),
            ("import - --reference registry.example/app:2", "read standard input and set the name"),
        ],
    ),
    (
        "devices",
        &[
            ("devices", "all devices and their values"),
            ("devices set default/lamp power=on", "set a property from here"),
            ("devices history default/t1 temp", "former values"),
        ],
    ),
    ("run", &[("run", "what the service runs"), ("run --print-config", "print the configuration in force")]),
    ("selftest", &[("selftest --root /tmp/empty", "test this program on a new board")]),
    ("completion", &[("completion bash", "for /etc/bash_completion.d/edge-runtime")]),
    ("version", &[("version", "version, commit, Kubernetes API level"), ("version -o json", "for scripts")]),
    ("first-boot", &[("first-boot", "called by edge-runtime-firstboot.service")]),
    ("shutdown", &[("shutdown", "called when the machine shuts down")]),
];

/// Examples of a verb, as lines that can be typed with a comment.
pub(crate) fn examples(verb: &str) -> impl Iterator<Item = (String, &'static str)> + use<> {
    let of_verb = EXAMPLES.iter().find(|(name, _)| *name == verb).map(|(_, examples)| *examples).unwrap_or_default();
    of_verb.iter().map(|(words, what)| (format!("edge-runtime {words}"), *what))
}
