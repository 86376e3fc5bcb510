//! The refusal table: every field of a pod that this build does not honour is named here, none is ignored silently.
//!
//! [`table`] has each field of the API's types; this file walks a pod along it. An unknown field, as from a newer API,
//! is refused, too. There are three answers: refuse the pod permanently (phase Failed), let it wait for an outside
//! change (as a kubelet does with a volume it cannot mount), or run it with a warning where the field only limits or
//! reports what the container does anyway.

mod table;

use k8s_openapi::api::core::v1::{Pod, PodSpec};
use serde_json::Value;

use super::extended_resources::is_extended;
use super::hold;
use super::refusal::Refusal;

/// Effect of a row on a present value.
enum Rule {
    /// Honoured, with all that is inside it.
    Built,
    /// Meant for the scheduler or another controller: it has done its work when the pod arrives.
    Elsewhere,
    /// Honoured as far as the fields inside it are.
    In(Table),
    /// Refused unless it has one of these values, which ask for nothing.
    Only(&'static [&'static str]),
    No(Answer),
    /// The pod is let in; the container that asks for it waits with `CreateContainerConfigError`.
    AtContainer,
    /// Depends on more than the value.
    Check(fn(&PodSpec, &Value) -> Option<Answer>),
}

/// The names of fields, apart by blanks, and what holds for each of them.
type Table = &'static [(&'static str, Rule)];

fn rows(table: Table) -> impl Iterator<Item = (&'static str, &'static Rule)> {
    table.iter().flat_map(|(fields, rule)| fields.split_whitespace().map(move |field| (field, rule)))
}

#[derive(Clone, Copy)]
enum Answer {
    /// Phase Failed with this reason.
    Refuse(&'static str),
    /// Wait before the sandbox is made, with this event reason.
    Wait(&'static str),
    Warn,
}

/// Row for all names like `example.com/gpio`.
const EXTENDED: &str = "DOMAIN/NAME";

/// Row for all sizes of huge pages.
const HUGE_PAGES: &str = "hugepages-SIZE";

/// Reason of refusals for which the kubelet has no name of its own.
const UNSUPPORTED: &str = "PodFeatureUnsupported";

struct Finding {
    path: String,
    answer: Answer,
    value: String,
}

impl Finding {
    fn message(&self) -> String {
        match self.answer {
            Answer::Refuse("PodOSNotSupported") => {
                "Failed to admit pod as the OS field doesn't match node OS".to_owned()
            }
            Answer::Warn => format!("{}{} has no effect on this node", self.path, self.value),
            _ => format!("{}{} is not supported by this node", self.path, self.value),
        }
    }
}

/// Why this build can never run the pod, if so; the first unsupported field is named.
pub fn refusal(pod: &Pod) -> Option<Refusal> {
    findings(pod).into_iter().find_map(|f| match f.answer {
        Answer::Refuse(reason) => Some(Refusal { reason: reason.to_owned(), message: f.message() }),
        Answer::Wait(_) | Answer::Warn => None,
    })
}

/// Same as [`refusal`], for a field that is unknown to this build's types: `raw` is the object as it was sent.
pub fn unknown_field(raw: &Value, pod: &Pod) -> Option<Refusal> {
    let kept = serde_json::to_value(&pod.spec).ok()?;
    let path = super::strict::dropped_field(raw.get("spec")?, &kept)?;
    let message = format!("spec.{path} is not known to this node");
    Some(Refusal { reason: UNSUPPORTED.to_owned(), message })
}

/// Why this build cannot run an ephemeral container, if so: it came after the pod was looked at.
pub fn container_refusal(spec: &PodSpec, name: &str) -> Option<String> {
    let (at, container) = spec.ephemeral_containers.iter().flatten().enumerate().find(|(_, e)| e.name == name)?;
    let mut found = Vec::new();
    let value = serde_json::to_value(container).ok()?;
    walk(spec, &value, table::EPHEMERAL_CONTAINER, &format!("spec.ephemeralContainers[{at}]"), &mut found);
    found.into_iter().find(|f| !matches!(f.answer, Answer::Warn)).map(|f| f.message())
}

/// Returns what prevents the pod's start until something outside of it changes: event reason and message.
pub fn obstacle(pod: &Pod) -> Option<Refusal> {
    findings(pod).into_iter().find_map(|f| match f.answer {
        Answer::Wait(reason) => Some(Refusal { reason: reason.to_owned(), message: f.message() }),
        Answer::Refuse(_) | Answer::Warn => None,
    })
}

/// Fields and annotations without effect, one message each: for Warning events when the pod is admitted.
pub fn warnings(pod: &Pod) -> Vec<String> {
    let fields = findings(pod).into_iter().filter(|f| matches!(f.answer, Answer::Warn)).map(|f| f.message());
    fields.chain(hold::problem(pod)).collect()
}

fn findings(pod: &Pod) -> Vec<Finding> {
    let mut out = Vec::new();
    let Some(spec) = &pod.spec else { return out };
    if let Ok(value) = serde_json::to_value(spec) {
        walk(spec, &value, table::POD_SPEC, "spec", &mut out);
    }
    out
}

fn walk(spec: &PodSpec, value: &Value, table: Table, path: &str, out: &mut Vec<Finding>) {
    match value {
        Value::Array(items) => {
            for (i, item) in items.iter().enumerate() {
                walk(spec, item, table, &format!("{path}[{i}]"), out);
            }
        }
        Value::Object(fields) => {
            for (name, value) in fields.iter().filter(|(_, v)| !is_empty(v)) {
                let path = format!("{path}.{name}");
                let extended = is_extended(name);
                let huge = name.starts_with("hugepages-");
                let is = |row: &str| row == name || (extended && row == EXTENDED) || (huge && row == HUGE_PAGES);
                match rows(table).find(|(row, _)| is(row)) {
                    Some((_, Rule::In(table))) => walk(spec, value, table, &path, out),
                    Some((_, rule)) => {
                        if let Some(answer) = rule.judge(spec, value) {
                            out.push(Finding { path, answer, value: shown(value) });
                        }
                    }
                    None => out.push(Finding { path, answer: Answer::Refuse(UNSUPPORTED), value: String::new() }),
                }
            }
        }
        _ => {}
    }
}

impl Rule {
    fn judge(&self, spec: &PodSpec, value: &Value) -> Option<Answer> {
        match self {
            Self::Built | Self::Elsewhere | Self::In(_) | Self::AtContainer => None,
            Self::Only(harmless) => (!harmless.contains(&text(value).as_str())).then_some(Answer::Refuse(UNSUPPORTED)),
            Self::No(answer) => Some(*answer),
            Self::Check(check) => check(spec, value),
        }
    }
}

/// Whether the field counts as unset in the API. An empty object may have a meaning (`emptyDir: {}`).
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(s) => s.is_empty(),
        Value::Array(a) => a.is_empty(),
        _ => false,
    }
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// `: VALUE` of scalars, for the message.
fn shown(value: &Value) -> String {
    match value {
        Value::Object(_) | Value::Array(_) => String::new(),
        scalar => format!(": {scalar}"),
    }
}

#[cfg(test)]
mod docs_tests;
#[cfg(test)]
mod tests;
