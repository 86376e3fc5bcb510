//! `edge-runtime events`: what has happened here, newest last. From what the daemon keeps of this boot, and what no bridge has
//! taken yet; both can be read while it runs or not.

use std::collections::BTreeMap;
use std::io::Write;
use std::thread::sleep;
use std::time::Duration;

use edge_protocol::message::Report;
use edge_runtime::cli::verb::{Flag, Given, NAMESPACE, Operands, Verb};
use edge_runtime::cli::{CliError, print};
use edge_runtime::paths::Paths;
use edge_runtime::store::Store;
use serde_json::Value;

use crate::columns::one_line;
use crate::find;
use crate::output::{Form, JSON, OUTPUT};

/// Between two looks at what is new.
const PAUSE: Duration = Duration::from_millis(500);
/// More are not kept, and not shown.
const MOST: usize = 1000;

pub(crate) const VERB: Verb = Verb {
    name: "events",
    about: "List events of this node and its pods, newest last",
    operands: Operands::None,
    flags: &[
        Flag::switch("follow", "also print new events as they come").short('f'),
        Flag::value("tail", "N", "only the last N events"),
        NAMESPACE,
        Flag::value("for", "[KIND/]NAME", "only events of this pod or node, as pod/web"),
        OUTPUT,
        JSON,
    ],
    run,
};

/// Which ones.
#[derive(Default)]
pub(crate) struct Wanted {
    namespace: Option<String>,
    kind: Option<String>,
    name: Option<String>,
}

impl Wanted {
    /// `object`: `NAME`, or `KIND/NAME` as kubectl takes it.
    fn new(namespace: Option<String>, object: Option<String>) -> Self {
        let Some(object) = object else { return Self { namespace, ..Self::default() } };
        let (kind, name) = object.split_once('/').map_or((None, &*object), |(kind, name)| (Some(kind), name));
        let kind = kind.map(|kind| match kind.to_lowercase().as_str() {
            "pod" | "pods" | "po" => "Pod".to_owned(),
            "node" | "nodes" | "no" => "Node".to_owned(),
            _ => kind.to_owned(),
        });
        Self { namespace, kind, name: Some(name.to_owned()) }
    }

    fn is_any(&self) -> bool {
        self.namespace.is_none() && self.name.is_none()
    }

    fn has(&self, event: &Value) -> bool {
        let of = &event["involvedObject"];
        let is =
            |wanted: &Option<String>, field: &str| wanted.as_ref().is_none_or(|wanted| of[field] == wanted.as_str());
        is(&self.namespace, "namespace") && is(&self.kind, "kind") && is(&self.name, "name")
    }
}

fn run(given: Given) -> Result<(), CliError> {
    let paths = given.paths()?;
    let form = Form::of(&given)?;
    let wanted = Wanted::new(given.one("namespace")?, given.one("for")?);
    // To others than root every folder looks empty.
    find::has_run(&paths)?;
    let tail: usize = given.one("tail")?.unwrap_or(MOST);
    let mut shown: Vec<String> = Vec::new();
    let first = all(&paths, in_the_store(&paths), &wanted);
    let skip = first.len().saturating_sub(tail);
    shown.extend(first.iter().take(skip).map(key));
    if first.is_empty() && !given.has("follow") && !form.is_data() {
        let none = if wanted.is_any() { "no events are known" } else { "none of the known events match" };
        writeln!(std::io::stderr(), "{none}; the daemon keeps those of this boot")?;
        return Ok(());
    }
    if matches!(form, Form::Table | Form::Wide) && !first.is_empty() {
        print("TIME                 TYPE     REASON                 OBJECT                         MESSAGE")?;
    }
    let mut next = first;
    loop {
        for event in &next {
            // A repeated one is another one.
            if !shown.contains(&key(event)) {
                print(&shown_as(event, form)?)?;
                shown.push(key(event));
            }
        }
        if !given.has("follow") {
            return Ok(());
        }
        let excess = shown.len().saturating_sub(4 * MOST);
        shown.drain(..excess);
        sleep(PAUSE);
        next = all(&paths, in_the_store(&paths), &wanted);
    }
}

/// An event as a line, or as a document of its own: with `--follow` the list has no end.
fn shown_as(event: &Value, form: Form) -> Result<String, CliError> {
    match form {
        Form::Table | Form::Wide => Ok(line(event)),
        Form::Name => Ok(event["metadata"]["name"].as_str().unwrap_or_default().to_owned()),
        Form::Json | Form::Yaml => form.next(event),
    }
}

/// By time, each once, as it was told last; `waiting`: those that no bridge has taken.
pub(crate) fn all(paths: &Paths, waiting: Vec<Value>, wanted: &Wanted) -> Vec<Value> {
    let files = [paths.old_events(), paths.events()];
    let lines: Vec<String> = files.iter().filter_map(|file| std::fs::read_to_string(file).ok()).collect();
    let kept = lines.iter().flat_map(|text| text.lines()).filter_map(|line| serde_json::from_str(line).ok());
    let mut by_name: BTreeMap<String, Value> = BTreeMap::new();
    for event in waiting.into_iter().chain(kept) {
        by_name.insert(event["metadata"]["name"].as_str().unwrap_or_default().to_owned(), event);
    }
    let mut events: Vec<Value> = by_name.into_values().filter(|event| wanted.has(event)).collect();
    events.sort_by(|a, b| time(a).cmp(time(b)));
    events.split_off(events.len().saturating_sub(MOST))
}

/// Those that no bridge has taken, also from before this boot.
pub(crate) fn waiting(store: &Store) -> Vec<Value> {
    let event = |report| if let Report::Event { event } = report { Some(event) } else { None };
    store.outbox().unwrap_or_default().into_iter().filter_map(|row| event(row.report)).collect()
}

/// Events of one pod, as [`all`] has them.
pub(crate) fn of_pod(paths: &Paths, namespace: &str, name: &str) -> Vec<Value> {
    let wanted = Wanted::new(Some(namespace.to_owned()), Some(format!("pod/{name}")));
    all(paths, in_the_store(paths), &wanted)
}

fn in_the_store(paths: &Paths) -> Vec<Value> {
    if !paths.store().exists() {
        return Vec::new();
    }
    Store::open_shared(&paths.store()).map(|store| waiting(&store)).unwrap_or_default()
}

fn time(event: &Value) -> &str {
    event["lastTimestamp"].as_str().unwrap_or_default()
}

fn key(event: &Value) -> String {
    format!("{}/{}", event["metadata"]["name"], event["count"])
}

/// An event in columns.
pub(crate) fn line(event: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let of = &event["involvedObject"];
    let object = match (of["kind"].as_str().unwrap_or_default(), of["namespace"].as_str()) {
        ("Pod", Some(namespace)) => format!("{namespace}/{}", text(&of["name"])),
        (kind, _) => format!("{} {}", kind.to_lowercase(), text(&of["name"])),
    };
    let count =
        event["count"].as_u64().filter(|count| *count > 1).map(|count| format!(" (x{count})")).unwrap_or_default();
    // What a stranger's program printed may be in there.
    let message = one_line(event["message"].as_str().unwrap_or_default());
    let time = time(event);
    format!(
        "{:<20} {:<8} {:<22} {object:<30} {message}{count}",
        time.get(..20).unwrap_or(time),
        text(&event["type"]),
        text(&event["reason"])
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(name: &str, at: u64, count: u64) -> Value {
        json!({"metadata": {"name": name}, "count": count, "type": "Warning", "reason": "BackOff",
            "lastTimestamp": format!("2026-11-25T21:00:{at:02}Z"), "message": "a\u{1b}[2Jb\nc",
            "involvedObject": {"kind": "Pod", "namespace": "shop", "name": "web"}})
    }

    #[test]
    fn the_newest_are_last_and_a_repeated_one_is_shown_as_it_is_now() {
        let root = tempfile::tempdir().unwrap();
        let paths = Paths::new(root.path());
        assert!(all(&paths, in_the_store(&paths), &Wanted::default()).is_empty());
        std::fs::create_dir_all(paths.run()).unwrap();
        std::fs::write(paths.old_events(), format!("{}\n{{cut", event("b", 2, 1))).unwrap();
        std::fs::write(paths.events(), format!("{}\n{}\n", event("a", 1, 1), event("b", 5, 2))).unwrap();
        let names: Vec<String> = all(&paths, in_the_store(&paths), &Wanted::default()).iter().map(key).collect();
        assert_eq!(names, ["\"a\"/1", "\"b\"/2"]);
        for (object, count) in [("web", 2), ("pod/web", 2), ("Pod/web", 2), ("node/web", 0), ("other", 0)] {
            let wanted = Wanted::new(None, Some(object.into()));
            assert_eq!(all(&paths, in_the_store(&paths), &wanted).len(), count, "{object}");
        }
        assert!(all(&paths, in_the_store(&paths), &Wanted::new(Some("other".into()), None)).is_empty());
    }

    #[test]
    fn a_line_is_one_line_whatever_is_in_it() {
        let shown = line(&event("a", 1, 3));
        assert!(shown.ends_with("shop/web                       a [2Jb c (x3)"), "{shown:?}");
        assert!(!shown.contains(['\n', '\u{1b}']));
    }
}
