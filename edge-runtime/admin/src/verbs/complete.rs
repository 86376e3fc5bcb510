//! `edge-runtime complete WORD...`: prints what the last of these words may become. The scripts of shells call it at each
//! request, so it prints nothing rather than an error, and ends soon.

use std::ffi::OsString;
use std::path::Path;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use edge_runtime::cli::verb::{Given, Operands, ROOT, Verb};
use edge_runtime::cli::{CliError, print};
use edge_runtime::paths::Paths;
use sampan_pod::record::{ContainerKind, PodRecord};
use sampan_sys::words::verb_first;

use super::devices;
use crate::completion::line::{Line, Wanted};
use crate::find;
use crate::man::keys::KEYS;

pub(super) const VERB: Verb = Verb::helper("complete", Operands::Raw, &[], run);

/// A disk or a lock may hang; the user waits with the cursor in a line.
const PATIENCE: Duration = Duration::from_secs(1);

fn run(given: Given) -> Result<(), CliError> {
    let (tell, told) = channel();
    // Ends with the process.
    thread::spawn(move || {
        let _ = tell.send(answer(&given.operands));
    });
    match told.recv_timeout(PATIENCE).unwrap_or_default().join("\n").as_str() {
        "" => Ok(()),
        names => print(names),
    }
}

/// Words that the last of `words` may become. None also if they cannot be known, such as to others than root.
fn answer(words: &[OsString]) -> Vec<String> {
    let Some((last, before)) = words.split_last() else { return Vec::new() };
    let text = |word: &OsString| word.to_string_lossy().into_owned();
    let (last, before) = (text(last), verb_first(before.to_vec()));
    let before: Vec<String> = before.iter().map(text).collect();
    let Some((name, rest)) = before.split_first() else { return Vec::new() };
    let Some(verb) = super::find(name).filter(|verb| !verb.is_helper()) else { return Vec::new() };
    let line = Line::read(verb, rest);
    let Ok(root) = std::path::absolute(Path::new(line.value(ROOT.long).unwrap_or("/"))) else { return Vec::new() };
    let names = names(&line.wanted(), &last, &Paths::new(&root)).unwrap_or_default();
    fitting(names, &last)
}

fn names(wanted: &Wanted<'_>, last: &str, paths: &Paths) -> Result<Vec<String>, CliError> {
    let pods = || -> Result<Vec<PodRecord>, CliError> {
        Ok(find::store(paths)?.pods()?.0.into_iter().map(|pod| pod.record).collect())
    };
    Ok(match wanted {
        Wanted::Nothing => Vec::new(),
        Wanted::Words(words) => words.iter().map(|word| (*word).to_owned()).collect(),
        Wanted::Keys => KEYS.iter().map(|key| key.name.to_owned()).collect(),
        Wanted::Namespaces => pods()?.into_iter().map(|pod| pod.namespace).collect(),
        Wanted::Pods { namespace } => of_pods(&pods()?, *namespace, last),
        Wanted::Containers { namespace, pod } => of_containers(&pods()?, *namespace, *pod),
        Wanted::Devices { namespace } => of_devices(devices::all_names(paths)?, *namespace, last),
        Wanted::Images => {
            let references = find::store(paths)?.images()?.into_iter().flat_map(|image| image.references);
            // Most users never type a digest.
            references.filter(|name| !name.contains('@') || last.contains('@')).collect()
        }
    })
}

/// Pods as `NAME`, and as `NAMESPACE/NAME` if the name is not unique or a part of it is typed.
fn of_pods(pods: &[PodRecord], namespace: Option<&str>, last: &str) -> Vec<String> {
    let of_namespace = |pod: &&PodRecord| namespace.is_none_or(|namespace| namespace == pod.namespace);
    let pods: Vec<&PodRecord> = pods.iter().filter(of_namespace).collect();
    let is_unique = |name: &str| pods.iter().filter(|pod| pod.name == name).count() == 1;
    let mut names = Vec::new();
    for pod in &pods {
        if is_unique(&pod.name) {
            names.push(pod.name.clone());
        }
        if namespace.is_none() && (!last.is_empty() || !is_unique(&pod.name)) {
            names.push(format!("{}/{}", pod.namespace, pod.name));
        }
    }
    names
}

fn of_containers(pods: &[PodRecord], namespace: Option<&str>, pod: Option<&str>) -> Vec<String> {
    let (namespace, name) = match pod.and_then(|pod| pod.split_once('/')) {
        Some((namespace, name)) => (Some(namespace), Some(name)),
        None => (namespace, pod),
    };
    let is_meant = |pod: &&PodRecord| {
        namespace.is_none_or(|namespace| namespace == pod.namespace) && name.is_none_or(|name| name == pod.name)
    };
    let containers = pods.iter().filter(is_meant).flat_map(|pod| &pod.containers);
    containers.filter(|(_, one)| one.kind != ContainerKind::Pause).map(|(name, _)| name.clone()).collect()
}

/// Devices as `NAMESPACE/NAME`, but those of the namespace that is meant as `NAME`, unless a part of it is typed.
fn of_devices(names: Vec<String>, namespace: Option<&str>, last: &str) -> Vec<String> {
    if last.contains('/') {
        return names;
    }
    let own = format!("{}/", namespace.unwrap_or("default"));
    let short = |name: String| match name.strip_prefix(&own) {
        Some(short) => short.to_owned(),
        None => name,
    };
    names.into_iter().map(short).collect()
}

/// Sorted, and only names that no shell or terminal takes for something else: the store holds texts of strangers.
fn fitting(mut names: Vec<String>, last: &str) -> Vec<String> {
    let is_plain = |name: &str| name.chars().all(|sign| sign.is_ascii_alphanumeric() || "-._/:@".contains(sign));
    names.retain(|name| name.starts_with(last) && !name.is_empty() && is_plain(name));
    names.sort_unstable();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use sampan_pod::record::ContainerRecord;

    use super::*;

    fn pod(namespace: &str, name: &str, containers: &[(&str, ContainerKind)]) -> PodRecord {
        let mut pod = PodRecord { namespace: namespace.into(), name: name.into(), ..Default::default() };
        pod.containers =
            containers.iter().map(|(name, kind)| ((*name).to_owned(), ContainerRecord::new(*kind))).collect();
        pod
    }

    fn pods() -> Vec<PodRecord> {
        let app = ContainerKind::App;
        vec![
            pod("shop", "web", &[("app", app), ("pause", ContainerKind::Pause)]),
            pod("test", "web", &[("next", app)]),
            pod("shop", "db", &[("sql", app), ("setup", ContainerKind::Init)]),
        ]
    }

    #[test]
    fn pod_gets_its_namespace_if_the_name_is_not_unique() {
        let of = |namespace: Option<&str>, last: &str| fitting(of_pods(&pods(), namespace, last), last);
        assert_eq!(of(None, ""), ["db", "shop/web", "test/web"]);
        assert_eq!(of(None, "d"), ["db"]);
        assert_eq!(of(None, "sho"), ["shop/db", "shop/web"]);
        assert_eq!(of(Some("shop"), ""), ["db", "web"]);
        assert!(of(Some("none"), "").is_empty());
    }

    #[test]
    fn containers_are_those_of_the_typed_pod() {
        let of = |namespace: Option<&str>, pod: Option<&str>| fitting(of_containers(&pods(), namespace, pod), "");
        assert_eq!(of(None, Some("db")), ["setup", "sql"]);
        assert_eq!(of(None, Some("shop/web")), ["app"]);
        assert_eq!(of(None, Some("web")), ["app", "next"]);
        assert_eq!(of(Some("test"), Some("web")), ["next"]);
        assert_eq!(of(Some("test"), None), ["next"]);
    }

    #[test]
    fn device_of_the_own_namespace_has_a_short_name() {
        let of = |namespace: Option<&str>, last: &str| {
            let names = ["default/level", "water/pump"].map(str::to_owned).to_vec();
            fitting(of_devices(names, namespace, last), last)
        };
        assert_eq!(of(None, ""), ["level", "water/pump"]);
        assert_eq!(of(None, "l"), ["level"]);
        assert_eq!(of(None, "default/"), ["default/level"]);
        assert_eq!(of(Some("water"), "p"), ["pump"]);
    }

    #[test]
    fn names_that_a_shell_would_run_are_left_out() {
        let names =
            ["b", "a:1", "a:1", "$(reboot)", "a b", "a\u{1b}[2J", "", "r.io:5000/a@sha256:1"].map(str::to_owned);
        assert_eq!(fitting(names.to_vec(), ""), ["a:1", "b", "r.io:5000/a@sha256:1"]);
    }

    #[test]
    fn nothing_is_said_where_nothing_is_known() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().to_str().unwrap();
        let of = |words: &[&str]| answer(&words.iter().map(OsString::from).collect::<Vec<_>>());
        for words in [
            &["logs", "--root", root, "w"][..],
            &["--root", root, "images", "rm", ""],
            &["dance", ""],
            &["man", ""],
            &[],
        ] {
            assert!(of(words).is_empty(), "{words:?}");
        }
        assert_eq!(of(&["--root", root, "images", "p"]), ["prune"]);
        assert_eq!(of(&["config", "get", "logs.max-f"]), ["logs.max-files"]);
        assert_eq!(std::fs::read_dir(root).unwrap().count(), 0);
    }
}
