//! Each client reads, writes and watches, and is refused what its account may not do.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use crate::site::{Site, kubectls, node_modules};
use sampan_tests::process::Process;
use sampan_tests::{can_run, until};

/// The interpreter of the host's folder `/usr`, which pods see.
pub(crate) const PYTHON: &str = "/usr/bin/python3 /clients/clients.py";

#[test]
fn python_client_works_in_a_pod() {
    if !can_run() {
        return;
    }
    let site = Site::start("api-python");
    let said = site.run("python", &format!("{PYTHON} everyday"));
    assert_eq!(said, "pods python\nwatched made-by-python\nn 2\nnodes 403\nended 0\n");
    assert!(site.kubectl().get("configmap", "made-by-python").is_ok());
}

#[test]
fn leader_election_works_in_pods() {
    if !can_run() {
        return;
    }
    let site = Site::start("api-elect");
    let holder = || {
        let lease = site.kubectl().get("lease", "leader")?;
        lease["spec"]["holderIdentity"].as_str().map(str::to_owned).ok_or_else(|| lease.to_string())
    };
    let names = ["one", "other"];
    site.kubectl().apply_all(&names.map(|name| site.pod(name, &format!("{PYTHON} elect {name}"))));
    let first = until(Duration::from_secs(60), "a leader", holder);
    let second = names.into_iter().find(|name| *name != first).expect("two names");
    site.wait_said(&first, &format!("leads {first}"));
    // It renews for longer than its lease lasts.
    std::thread::sleep(Duration::from_secs(8));
    assert_eq!(holder().as_deref(), Ok(first.as_str()));
    assert!(!site.said(second).contains("leads"), "{}", site.said(second));
    let _ = site.kubectl().ok(&["delete", "pod", &first, "--wait=true"]);
    site.wait_said(second, &format!("leads {second}"));
    assert_eq!(holder().as_deref(), Ok(second));
}

#[test]
fn kubectl_in_a_pod_finds_the_local_api() {
    if !can_run() {
        return;
    }
    let site = Site::start("api-kubectl");
    site.kubectl().apply_all(&[site.pod("user", "true")]);
    site.kubectl().wait_ready("user");
    let programs = kubectls(site.kubectl());
    assert!(!programs.is_empty(), "no kubectl is there");
    for (number, program) in programs.iter().enumerate() {
        let name = program.file_name().and_then(|name| name.to_str()).expect("a name");
        uses(&site, &format!("/kubectl-{number}/{name}"), number);
    }
}

fn uses(site: &Site, program: &str, number: usize) {
    let run = |words: &str| site.kubectl().ok(&["exec", "user", "--", "sh", "-c", &format!("{program} {words}")]);
    assert_eq!(run("get pods -o name"), "pod/user\n", "{program}");
    // The watch begins before the object is there.
    let log = site.cluster.folder().join(format!("watch-{number}"));
    let words = ["exec", "user", "--", program, "get", "cm", "-w", "-o", "name"];
    let mut watch = Process::start(&mut site.kubectl().command(&words), &log);
    let wait = |watch: &Process, line: &str| {
        until(Duration::from_secs(40), &format!("{program} get cm -w: {line}"), || {
            let log = watch.log();
            if log.lines().any(|one| one == line) { Ok(()) } else { Err(log) }
        });
    };
    wait(&watch, "configmap/fixed");
    let made = format!("made-by-kubectl-{number}");
    assert_eq!(run(&format!("create configmap {made} --from-literal=n=1")), format!("configmap/{made} created\n"));
    wait(&watch, &format!("configmap/{made}"));
    watch.kill();
    assert_eq!(run("auth can-i list pods"), "yes\n", "{program}");
    // It ends with 1 then, and may name a reason.
    let refused = run("auth can-i delete secrets || :");
    assert!(refused.starts_with("no"), "{program}: {refused}");
    let refused = run("get nodes 2>&1 || :");
    assert!(refused.contains("Forbidden"), "{program}: {refused}");
}

#[test]
fn kube_rs_client_works_in_a_pod() {
    if !can_run() {
        return;
    }
    let site = Site::start("api-kube-rs");
    let said = site.run("rust", "/programs/api-client everyday");
    assert_eq!(said, "pods rust\nn 1\nnodes 403\nended 0\n");
    assert!(site.kubectl().get("configmap", "made-by-kube-rs").is_ok());
}

/// Whether the interpreter is where pods see it, and its package is there; a notice if not.
fn has_node_js() -> bool {
    let has = Path::new("/usr/bin/node").exists() && node_modules().is_some();
    if !has {
        // Only a notice: nothing to do when stderr is gone.
        let _ = writeln!(std::io::stderr(), "skipped: /usr/bin/node or npm's @kubernetes/client-node is not there");
    }
    has
}

#[test]
fn node_js_client_works_in_a_pod() {
    if !can_run() || !has_node_js() {
        return;
    }
    let site = Site::start("api-node-js");
    let said = site.run("javascript", "/usr/bin/node /clients/clients.mjs");
    assert_eq!(said, "pods javascript\nwatched made-by-javascript\nnodes 403\nended 0\n");
    assert!(site.kubectl().get("configmap", "made-by-javascript").is_ok());
}
