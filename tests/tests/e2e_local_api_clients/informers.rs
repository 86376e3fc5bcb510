//! Informers of two libraries follow ConfigMaps while the link is cut again and again. `TEST_LOCAL_API_SECONDS` and
//! `TEST_LOCAL_API_CUT` set the seconds of the long run and of its longest cut.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::time::{Duration, Instant};

use sampan_tests::{Kubectl, can_run, until};
use serde_json::{Value, json};

use crate::cuts::Cuts;
use crate::everyday::PYTHON;
use crate::followed::Followed;
use crate::site::Site;

const SELECTOR: &str = "judge=l4";
/// Objects that exist at a time.
const KEPT: usize = 50;
/// After the last cut: a node waits up to a minute before it dials, and clients up to 30 s before they ask again.
const CATCH_UP: Duration = Duration::from_secs(180);

/// Length of a run, of its longest cut, and of the pause between two changes.
struct Run {
    total: Duration,
    longest: Duration,
    between: Duration,
}

/// ConfigMaps that the test has created, and those that it has not deleted again.
#[derive(Default)]
struct Objects {
    exists: BTreeMap<String, String>,
    created: BTreeSet<String>,
}

impl Objects {
    /// Creates an object, changes another, and deletes: old ones, and some as soon as they exist.
    fn change(&mut self, kubectl: &Kubectl, number: usize) {
        let mut applied = vec![self.apply(format!("o{number}"), "0".to_owned())];
        let other = number.checked_sub(2).map(|other| format!("o{other}"));
        if let Some(other) = other.filter(|other| self.exists.contains_key(other)) {
            applied.push(self.apply(other, number.to_string()));
        }
        kubectl.apply_all(&applied);
        let short = number.checked_sub(1).filter(|_| number.is_multiple_of(3));
        for old in short.into_iter().chain(number.checked_sub(KEPT)).map(|old| format!("o{old}")) {
            if self.exists.remove(&old).is_some() {
                let _ = kubectl.ok(&["delete", "configmap", &old, "--wait=false"]);
            }
        }
    }

    fn apply(&mut self, name: String, value: String) -> Value {
        let labels = json!({"judge": "l4"});
        let metadata = json!({"name": name, "labels": labels});
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"n": value}});
        self.created.insert(name.clone());
        self.exists.insert(name, value);
        object
    }
}

fn follow(test: &str, run: &Run) {
    let site = Site::start(test);
    let pods = [
        ("python", format!("{PYTHON} inform {SELECTOR}")),
        ("rust", format!("/programs/api-client inform {SELECTOR}")),
    ];
    site.kubectl().apply_all(&pods.clone().map(|(name, command)| site.pod(name, &command)));
    for (name, _) in &pods {
        let _ = site.wait_said(name, "list");
    }
    let mut objects = Objects::default();
    let mut cuts = Cuts::new(&site.proxy, run.longest);
    let start = Instant::now();
    for number in 0.. {
        if start.elapsed() > run.total {
            break;
        }
        cuts.step();
        objects.change(site.kubectl(), number);
        std::thread::sleep(run.between);
    }
    let count = cuts.end();
    assert!(count >= 2, "{count} cuts");
    for (name, _) in &pods {
        let followed = until(CATCH_UP, &format!("the informer in {name} knows all objects"), || {
            let said = site.said(name);
            let followed = Followed::read(&said);
            let tail: Vec<&str> = said.lines().rev().take(20).collect();
            let problem = followed.problem(&objects.exists, &objects.created);
            match problem {
                None => Ok(followed),
                Some(problem) => Err(format!("{problem}; it said, newest first: {tail:?}; {}", site.errors(name))),
            }
        });
        let Followed { lists, gone, errors, .. } = followed;
        let made = objects.created.len();
        // Shows the reader of the long run what happened.
        let _ = writeln!(
            std::io::stderr(),
            "{name}: {made} objects, {count} cuts: {lists} lists, {gone} times 410, {errors} errors"
        );
    }
}

fn seconds(variable: &str, usual: u64) -> Duration {
    Duration::from_secs(std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(usual))
}

#[test]
fn l4_informers_miss_no_object_over_cuts() {
    if !can_run() {
        return;
    }
    let total = Duration::from_secs(45);
    follow("api-inform", &Run { total, longest: Duration::from_secs(10), between: Duration::from_millis(300) });
}

#[test]
#[ignore = "an hour"]
fn l4_informers_miss_no_object_in_an_hour_of_cuts() {
    if !can_run() {
        return;
    }
    let (total, longest) = (seconds("TEST_LOCAL_API_SECONDS", 3_600), seconds("TEST_LOCAL_API_CUT", 600));
    follow("api-inform-long", &Run { total, longest, between: Duration::from_secs(1) });
}
