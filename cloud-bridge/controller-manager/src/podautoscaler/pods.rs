//! The pods of a target: which of them count, and their requests (K8s replica_calculator.go `groupPods`,
//! `calculateRequests`). Decisions only.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::metrics::Sample;
use super::options::Options;
use apimachinery::json::{items, text};
use apimachinery::quantity::Quantity;

/// A pod as far as it is looked at.
#[derive(Debug, Clone)]
pub(crate) struct Pod {
    /// The object of the API.
    pub(crate) object: Value,
    pub(crate) start: Option<Timestamp>,
    /// The status of the condition `Ready`, and since when it is so.
    pub(crate) ready: Option<(String, Timestamp)>,
}

impl Pod {
    pub(crate) fn new(object: Value) -> Self {
        let time = |holder: &Value, field: &str| text(holder, field).parse::<Timestamp>().ok();
        let status = &object["status"];
        let condition = items(status, "conditions").iter().find(|one| text(one, "type") == "Ready");
        let since = |one: &Value| time(one, "lastTransitionTime").unwrap_or(Timestamp::UNIX_EPOCH);
        let ready = condition.map(|one| (text(one, "status").to_owned(), since(one)));
        Self { start: time(status, "startTime"), ready, object }
    }

    pub(crate) fn name(&self) -> &str {
        text(&self.object["metadata"], "name")
    }

    pub(crate) fn uid(&self) -> &str {
        text(&self.object["metadata"], "uid")
    }

    fn phase(&self) -> &str {
        text(&self.object["status"], "phase")
    }

    /// Whether its CPU usage is not yet meaningful: it is starting, or has never been ready.
    fn is_unready(&self, sample: &Sample, options: &Options, clock: Timestamp) -> bool {
        let (Some(start), Some((ready, since))) = (self.start, &self.ready) else { return true };
        let plus = |time: Timestamp, length: std::time::Duration| {
            let length = SignedDuration::try_from(length).unwrap_or(SignedDuration::MAX);
            time.checked_add(length).unwrap_or(Timestamp::MAX)
        };
        if plus(start, options.cpu_initialization_period) > clock {
            return ready == "False" || sample.timestamp < plus(*since, sample.window);
        }
        ready == "False" && plus(start, options.initial_readiness_delay) > *since
    }

    /// Its request of a resource, in thousandths: in total, or of one of its containers.
    fn request(&self, resource: &str, container: &str) -> Result<i64, String> {
        let spec = &self.object["spec"];
        let own = &spec["resources"]["requests"];
        if container.is_empty() && own.as_object().is_some_and(|own| !own.is_empty()) {
            return self.whole_request(resource);
        }
        let mut sum = 0_i64;
        for one in counted(spec) {
            let name = text(one, "name");
            if !container.is_empty() && container != name {
                continue;
            }
            let asked = amount(one, resource)
                .ok_or_else(|| format!("missing request for {resource} in container {name} of Pod {}", self.name()))?;
            sum = sum.saturating_add(asked);
            if container == name {
                return Ok(sum);
            }
        }
        if container.is_empty() {
            Ok(sum)
        } else {
            Err(format!("container {container} not found in Pod {}", self.name()))
        }
    }

    /// Request of a whole pod: its own, or the sum of its containers.
    fn whole_request(&self, resource: &str) -> Result<i64, String> {
        let spec = &self.object["spec"];
        let own = amount(spec, resource);
        let of_containers = || counted(spec).filter_map(|one| amount(one, resource)).reduce(i64::saturating_add);
        let asked = own.or_else(of_containers);
        let asked = asked.ok_or_else(|| format!("missing pod-level request for {resource} in Pod {}", self.name()))?;
        let overhead = Quantity::from_value(&spec["overhead"][resource]).map_or(0, Quantity::millis);
        Ok(asked.saturating_add(overhead))
    }
}

/// The containers that run for as long as the pod does.
fn counted(spec: &Value) -> impl Iterator<Item = &Value> {
    let sidecars = items(spec, "initContainers").iter().filter(|one| text(one, "restartPolicy") == "Always");
    items(spec, "containers").iter().chain(sidecars)
}

fn amount(holder: &Value, resource: &str) -> Option<i64> {
    Quantity::from_value(&holder["resources"]["requests"][resource]).map(Quantity::millis)
}

/// What each pod asks for.
pub(crate) fn requests(pods: &[Pod], resource: &str, container: &str) -> Result<BTreeMap<String, i64>, String> {
    pods.iter().map(|pod| Ok((pod.name().to_owned(), pod.request(resource, container)?))).collect()
}

/// A pod for each set of labels: most pods of a target have the same, and each autoscaler of a namespace is held against
/// those of all others.
pub(crate) fn by_labels(pods: &[Pod]) -> Vec<&Pod> {
    let labels = |pod: &Pod| pod.object["metadata"]["labels"].to_string();
    pods.iter().map(|pod| (labels(pod), pod)).collect::<BTreeMap<_, _>>().into_values().collect()
}

/// Names of the pods by the available data.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Groups {
    pub(crate) ready: usize,
    pub(crate) unready: BTreeSet<String>,
    /// Pods without measurements: their node is offline, or they have just started.
    pub(crate) missing: BTreeSet<String>,
    pub(crate) ignored: BTreeSet<String>,
}

/// Groups the pods. Readiness matters only for CPU.
pub(crate) fn group(
    pods: &[Pod],
    samples: &BTreeMap<String, Sample>,
    resource: &str,
    options: &Options,
    clock: Timestamp,
) -> Groups {
    let mut groups = Groups::default();
    for pod in pods {
        let name = pod.name().to_owned();
        if !text(&pod.object["metadata"], "deletionTimestamp").is_empty() || pod.phase() == "Failed" {
            groups.ignored.insert(name);
        } else if pod.phase() == "Pending" {
            groups.unready.insert(name);
        } else if let Some(sample) = samples.get(&name) {
            if resource == "cpu" && pod.is_unready(sample, options, clock) {
                groups.unready.insert(name);
            } else {
                groups.ready += 1;
            }
        } else {
            groups.missing.insert(name);
        }
    }
    groups
}
