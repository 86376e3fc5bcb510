//! Problems of Devices that a user should know: each problem is reported once, when it has lasted, and not too many of
//! one Device. Pure: independent of the reporting and of the time of checks.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};

use super::index::Index;
use super::view::Device;
use crate::bridge::name::Name;

/// Maximum number of reported problems of one Device.
const MOST: usize = 25;
/// Maximum number of problems of all Devices that are reported at once.
const AT_ONCE: usize = 25;
/// Maximum number of properties that one problem names.
const NAMED: usize = 8;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Problem {
    pub(super) name: Name,
    pub(super) uid: Box<str>,
    pub(super) node: Box<str>,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

/// All problems of Devices whose nodes are connected. `takes`: whether such a node takes Devices.
pub(super) fn problems(index: &Index, takes: impl Fn(&str) -> Option<bool>) -> Vec<Problem> {
    let of_device = |(name, device): (&Name, &Device)| {
        let (reason, message) = match takes(&device.node)? {
            true => of_model(index, name, device)?,
            false => {
                let why =
                    format!("node {} takes no Devices: there is nothing of them in its configuration", device.node);
                ("NodeTakesNoDevices", why)
            }
        };
        let (name, uid, node) = (name.clone(), device.uid.clone(), device.node.clone());
        Some(Problem { name, uid, node, reason, message })
    };
    index.bound().filter_map(of_device).collect()
}

fn of_model(index: &Index, name: &Name, device: &Device) -> Option<(&'static str, String)> {
    let Some(model) = index.model(name, device) else {
        let why = format!("there is no DeviceModel {:?} in its namespace", device.model);
        return Some(("DeviceModelNotFound", why));
    };
    let known: HashSet<&str> = model.properties.iter().map(|property| &**property).collect();
    let unknown: Vec<&str> =
        device.properties.iter().map(|property| &**property).filter(|property| !known.contains(property)).collect();
    let more = if unknown.len() > NAMED { format!(" and {} more", unknown.len() - NAMED) } else { String::new() };
    let named = unknown.get(..NAMED).unwrap_or(&unknown).join(", ");
    let why = format!("not in DeviceModel {}: properties {named}{more}", device.model);
    (!unknown.is_empty()).then_some(("PropertyNotInModel", why))
}

/// Reported problems.
#[derive(Default)]
pub(super) struct Told {
    /// Problems at the last check: those that disappear in a moment are not reported.
    before: HashSet<u64>,
    /// Reported problems by the uid of the Device.
    told: HashMap<Box<str>, HashSet<u64>>,
    hasher: RandomState,
}

impl Told {
    /// Returns the problems to report now.
    pub(super) fn due(&mut self, index: &Index, present: Vec<Problem>) -> Vec<Problem> {
        // Deleted Devices are forgotten.
        if !self.told.is_empty() {
            let bound: HashSet<&str> = index.bound().map(|(_, device)| &*device.uid).collect();
            self.told.retain(|uid, _| bound.contains(&**uid));
        }
        let hashes: HashSet<u64> = present.iter().map(|problem| self.hasher.hash_one(problem)).collect();
        let before = std::mem::replace(&mut self.before, hashes);
        let mut due = Vec::new();
        for problem in present {
            let hash = self.hasher.hash_one(&problem);
            if due.len() == AT_ONCE || !before.contains(&hash) {
                continue;
            }
            let told = self.told.entry(problem.uid.clone()).or_default();
            if told.len() < MOST && told.insert(hash) {
                due.push(problem);
            }
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use kube::api::DynamicObject;
    use serde_json::{Value, json};

    use super::super::view::Model;
    use super::*;

    fn object(name: &str, uid: &str, spec: Value) -> DynamicObject {
        let metadata = json!({"namespace": "ns", "name": name, "uid": uid});
        serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
    }

    fn spec(properties: &[&str]) -> Value {
        let properties: Vec<Value> = properties.iter().map(|name| json!({ "name": name })).collect();
        json!({"nodeName": "n", "deviceModelRef": {"name": "m"}, "properties": properties})
    }

    fn index(uid: &str, device: &[&str], model: Option<&[&str]>) -> Index {
        let mut index = Index::default();
        index.set_device(("ns".into(), "d".into()), Device::of(&object("d", uid, spec(device))));
        index.set_model(("ns".into(), "m".into()), model.and_then(|model| Model::of(&object("m", "m", spec(model)))));
        index
    }

    fn found(index: &Index, takes: Option<bool>) -> Vec<(&'static str, String)> {
        problems(index, |_| takes).into_iter().map(|problem| (problem.reason, problem.message)).collect()
    }

    #[test]
    fn what_is_wrong_with_a_device_is_named() {
        let good = index("u", &["a"], Some(&["a", "b"]));
        assert!(found(&good, Some(true)).is_empty());
        assert!(found(&good, None).is_empty(), "another bridge's node, or nobody's");
        assert_eq!(found(&good, Some(false))[0].0, "NodeTakesNoDevices");
        let alone = index("u", &["a"], None);
        assert_eq!(
            found(&alone, Some(true))[0],
            ("DeviceModelNotFound", "there is no DeviceModel \"m\" in its namespace".into())
        );
        let odd = index("u", &["a", "x", "y"], Some(&["a"]));
        assert_eq!(found(&odd, Some(true))[0], ("PropertyNotInModel", "not in DeviceModel m: properties x, y".into()));
        let many: Vec<String> = (0..100).map(|number| format!("p{number}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(found(&index("u", &many, Some(&[])), Some(true))[0].1.ends_with("p7 and 92 more"));
    }

    #[test]
    fn g09_a_problem_is_told_once_and_not_before_it_has_lasted() {
        let (mut told, index) = (Told::default(), index("u", &["a"], None));
        let present = || problems(&index, |_| Some(true));
        assert!(told.due(&index, present()).is_empty(), "its model is on its way, perhaps");
        assert_eq!(told.due(&index, present()).len(), 1);
        assert!((0..100).all(|_| told.due(&index, present()).is_empty()));
        // A new Device with the name of a deleted one.
        let next = self::index("v", &["a"], None);
        let present = || problems(&next, |_| Some(true));
        assert!(told.due(&next, present()).is_empty());
        assert_eq!(told.due(&next, present()).len(), 1);
        assert_eq!(told.told.len(), 1, "the old one is forgotten");
    }

    #[test]
    fn g09_one_device_makes_few_events_whatever_is_done_to_it() {
        let (mut told, mut count) = (Told::default(), 0);
        for number in 0..200 {
            let index = index("u", &[&format!("p{number}")], Some(&[]));
            for _ in 0..2 {
                count += told.due(&index, problems(&index, |_| Some(true))).len();
            }
        }
        assert_eq!(count, MOST);
    }
}
