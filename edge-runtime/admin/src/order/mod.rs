//! Orders of fleet jobs, done on this node by a helper process of the daemon: an order comes in, and again and again how far it is
//! goes out. What was done is kept in a file, so that a helper, a daemon or a machine that ends in between does nothing twice.
//!
//! | file | owns |
//! |---|---|
//! | `job` | one order at work, and what it waits for |
//! | `kept` | what is remembered of an order |
//! | `progress` | telling how far it is |
//! | `check` | whether the node has what the work takes |
//! | `upgrade`, `prepull`, `configure` | the work |
//! | `fields` | changing values of a configuration (pure) |

mod check;
mod configure;
pub(crate) mod fields;
mod job;
pub(crate) mod kept;
mod prepull;
mod progress;
mod upgrade;

use std::time::{Duration, Instant};

use edge_protocol::message::{Job as Named, Order, OrderPhase, Work};
use edge_runtime::paths::Paths;

use job::{End, Job};
use kept::Kept;
use progress::Progress;

/// A year, in seconds: as the bridge has it for a job.
const LONGEST: u64 = 366 * 86_400;

/// Executes the remaining steps. Calls `tell` with each stored state.
pub(crate) fn run(order: &Order, paths: &Paths, tell: &mut dyn FnMut(&Kept)) {
    let kept = Kept::load(paths, &order.job);
    let ended = kept.status.phase.is_final();
    let mut job = Job {
        order,
        paths,
        progress: Progress::new(kept, paths, tell),
        until: Instant::now() + patience(order.timeout_seconds),
    };
    // The bridge asks because it does not know.
    job.progress.tell();
    if ended {
        return;
    }
    let done = match &order.work {
        _ if has_control_character(order) => Err("the job's name, uid or images hold a control character".to_owned()),
        Work::Upgrade { .. } => upgrade::work(&mut job),
        Work::PrePull { images, secrets, retry_times } => prepull::work(&mut job, images, secrets, *retry_times),
        Work::Configure { fields } => configure::work(&mut job, fields),
        Work::Unknown(_) => Err("this version of edge-runtime does not know such work".to_owned()),
    };
    match done {
        Ok(End::Done) => job.progress.end(OrderPhase::Successful, ""),
        Ok(End::Later) => {}
        Err(why) => job.progress.end(OrderPhase::Failure, &why),
    }
}

/// Whether a string that ends up in a file, a command line or a log could begin a line of its own there. Logins and new
/// values of a configuration are documents, and read as such.
fn has_control_character(order: &Order) -> bool {
    let Named { kind, name, uid } = &order.job;
    let of_work: Vec<&String> = match &order.work {
        Work::Upgrade { version, image, digests, signatures } => {
            let maps = digests.iter().chain(signatures).flat_map(|(key, value)| [key, value]);
            [version, image].into_iter().chain(maps).collect()
        }
        Work::PrePull { images, .. } => images.iter().collect(),
        Work::Configure { fields } => fields.keys().collect(),
        Work::Unknown(_) => Vec::new(),
    };
    // YAML ends a line, and with it a comment, at the separators of Unicode, too (libyaml).
    let is_control = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}');
    [kind, name, uid].into_iter().chain(of_work).any(|text| text.chars().any(is_control))
}

/// A bridge that has lost its mind says any number, and a sum beyond all clocks would be the end of this process.
fn patience(seconds: u64) -> Duration {
    Duration::from_secs(seconds.clamp(1, LONGEST))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(name: &str, work: serde_json::Value) -> Order {
        let order = serde_json::json!({"job": {"kind": "ConfigUpdateJob", "name": name, "uid": "u"},
            "timeoutSeconds": 10, "work": work});
        serde_json::from_value(order).unwrap()
    }

    #[test]
    fn job_with_a_line_break_in_its_name_is_refused() {
        let temp = tempfile::tempdir().unwrap();
        let paths = Paths::new(temp.path());
        std::fs::create_dir_all(paths.config_file().parent().unwrap()).unwrap();
        let fields = serde_json::json!({"configure": {"fields": {"logs.max-files": "3"}}});
        let mut last = None;
        run(&order("x\nregistry: {}\n#", fields), &paths, &mut |kept| last = Some(kept.status.clone()));
        let last = last.unwrap();
        assert_eq!(last.phase, OrderPhase::Failure);
        assert!(last.reason.contains("control character"), "{}", last.reason);
        for work in [
            serde_json::json!({"prePull": {"images": ["a", "b\u{7}"]}}),
            serde_json::json!({"configure": {"fields": {"a\nb": "1"}}}),
            serde_json::json!({"upgrade": {"version": "1", "image": "i", "digests": {"amd64": "d\n"}}}),
        ] {
            assert!(has_control_character(&order("j", work)));
        }
        let unchanged = serde_json::json!({"configure": {"fields": {}}});
        for separator in ['\u{85}', '\u{2028}', '\u{2029}'] {
            let name = format!("x{separator}registry: {{}}{separator}#");
            let text = format!("# Written for ConfigUpdateJob {name}\nnode: n\n");
            let read: serde_yaml_ng::Mapping = serde_yaml_ng::from_str(&text).unwrap();
            assert!(read.contains_key("registry"), "it would be a key of the configuration");
            assert!(has_control_character(&order(&name, unchanged.clone())), "{name:?}");
        }
        let document = serde_json::json!({"prePull": {"images": ["a"], "secrets": ["{\n}"]}});
        assert!(!has_control_character(&order("j", document)), "a login is a document");
    }

    #[test]
    fn order_waits_for_confirmation_without_a_process() {
        let temp = tempfile::tempdir().unwrap();
        let paths = Paths::new(temp.path());
        std::fs::create_dir_all(paths.config_file().parent().unwrap()).unwrap();
        std::fs::create_dir_all(paths.state()).unwrap();
        let work = serde_json::json!({"upgrade": {"version": "1", "image": "i", "digests": {}}});
        let order = Order { require_confirmation: true, ..order("to-1", work) };
        let steps = |order: &Order| {
            let mut last = None;
            run(order, &paths, &mut |kept| last = Some(kept.status.clone()));
            let last = last.unwrap();
            let steps: Vec<_> = last.action_flow.iter().map(|step| (step.action.clone(), step.status)).collect();
            (steps, last)
        };
        for _ in 0..2 {
            let (told, last) = steps(&order);
            assert_eq!(told, [("Check".to_owned(), true), ("WaitingConfirmation".to_owned(), false)]);
            assert!(last.waits_for_confirmation());
        }
        let kept = Kept::load(&paths, &order.job);
        kept.confirm(&paths).unwrap();
        // A second check would fail.
        let unmet = Order { check_items: vec!["no such check".into()], ..order.clone() };
        let (told, last) = steps(&unmet);
        assert_eq!(told[1], ("WaitingConfirmation".to_owned(), true), "{}", last.reason);
        assert!(last.phase == OrderPhase::Failure && last.reason.contains("names no image"), "{}", last.reason);
    }

    #[test]
    fn no_number_of_a_bridge_is_beyond_the_clock() {
        for (seconds, wanted) in [(0, 1), (300, 300), (u64::MAX, LONGEST)] {
            assert_eq!(patience(seconds), Duration::from_secs(wanted));
            assert!(Instant::now().checked_add(patience(seconds)).is_some());
        }
    }
}
