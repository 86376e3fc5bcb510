//! What rules of the cloud may reach on this node, as it is configured. Pure.

use edge_protocol::topic::{covers, is_filter};
use serde::{Deserialize, Serialize};

use crate::settings::{MOST_NAMESPACES, is_namespace};

/// Ports, and filters of topics.
const MOST: usize = 64;

/// Section `device-twin.rules`. Any user with a right in one namespace can write a rule; the node decides what rules
/// may reach here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Rules {
    /// Ports at the loopback address that rules may send requests to.
    pub ports: Vec<u16>,
    /// Filters of topics that rules may publish to besides `NAMESPACE/#`.
    pub topics: Vec<String>,
    /// Namespaces whose rules this node serves; empty means all.
    pub namespaces: Vec<String>,
}

impl Rules {
    /// # Errors
    /// `KEY: WHY`.
    pub(crate) fn checked(&self) -> Result<(), String> {
        if self.ports.contains(&0) || self.ports.len() > MOST {
            return Err(format!("ports: must be at most {MOST} numbers from 1 to 65535"));
        }
        let wrong = self.topics.iter().find(|topic| !is_filter(topic));
        if let Some(topic) = wrong.or_else(|| self.topics.get(MOST)) {
            return Err(format!("topics: {topic:?} is no filter of topics, or one of more than {MOST}"));
        }
        let wrong = self.namespaces.iter().find(|name| !is_namespace(name));
        if let Some(name) = wrong.or_else(|| self.namespaces.get(MOST_NAMESPACES)) {
            return Err(format!(
                "namespaces: {name:?} is no name of a namespace, or one of more than {MOST_NAMESPACES}"
            ));
        }
        Ok(())
    }

    /// Whether rules of a namespace are served.
    ///
    /// # Errors
    /// The setting that forbids it.
    pub fn serve(&self, namespace: &str) -> Result<(), String> {
        if self.namespaces.is_empty() || self.namespaces.iter().any(|name| name == namespace) {
            return Ok(());
        }
        Err(format!(
            "this node serves no rules of namespace {namespace:?}: device-twin.rules.namespaces does not name it"
        ))
    }

    /// Whether a rule of a namespace may publish to a topic.
    ///
    /// # Errors
    /// The setting that forbids it.
    pub fn publish(&self, namespace: &str, topic: &str) -> Result<(), String> {
        self.serve(namespace)?;
        let is_own = topic.split_once('/').is_some_and(|(first, _)| !first.is_empty() && first == namespace);
        if is_own || self.topics.iter().any(|filter| covers(filter, topic)) {
            return Ok(());
        }
        Err(format!(
            "rules of namespace {namespace:?} may not publish to {topic:?} on this node: it is not below {namespace}/, \
             and device-twin.rules.topics names no filter for it"
        ))
    }

    /// Whether a rule of a namespace may send requests to a port at the loopback address.
    ///
    /// # Errors
    /// The setting that forbids it.
    pub fn ask(&self, namespace: &str, port: u16) -> Result<(), String> {
        self.serve(namespace)?;
        if self.ports.contains(&port) {
            return Ok(());
        }
        Err(format!(
            "rules may not send requests to port {port} of this node: device-twin.rules.ports does not name it"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(ports: &[u16], topics: &[&str], namespaces: &[&str]) -> Rules {
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        Rules { ports: ports.to_vec(), topics: texts(topics), namespaces: texts(namespaces) }
    }

    #[test]
    fn unnamed_ports_are_refused() {
        let refused = Rules::default().ask("a", 1880);
        assert!(refused.is_err_and(|why| why.contains("1880") && why.contains("device-twin.rules.ports")));
        let some = rules(&[1880], &[], &[]);
        assert_eq!((some.ask("a", 1880), some.ask("a", 80).is_err()), (Ok(()), true));
    }

    #[test]
    fn topics_outside_the_namespace_are_refused() {
        let none = Rules::default();
        assert_eq!(none.publish("a", "a/led/set"), Ok(()));
        for topic in ["led", "b/led", "a", "ab/led", "/led", "$hw/events/device/b/d/twin/update"] {
            let refused = none.publish("a", topic);
            assert!(refused.is_err_and(|why| why.contains("device-twin.rules.topics")), "{topic}");
        }
        assert!(none.publish("", "/led").is_err(), "a bridge that does not say the namespace");
        let some = rules(&[], &["led/+"], &[]);
        assert_eq!((some.publish("a", "led/1"), some.publish("a", "led/1/2").is_err()), (Ok(()), true));
        let all = rules(&[], &["#"], &[]);
        assert_eq!((all.publish("a", "x"), all.publish("a", "$hw/x").is_err()), (Ok(()), true));
    }

    #[test]
    fn rules_of_other_namespaces_are_refused() {
        let narrow = rules(&[80], &["#"], &["a"]);
        assert_eq!((narrow.serve("a"), narrow.ask("a", 80), narrow.publish("a", "x")), (Ok(()), Ok(()), Ok(())));
        for refused in [narrow.serve("b"), narrow.ask("b", 80), narrow.publish("b", "b/x"), narrow.serve("")] {
            assert!(refused.is_err_and(|why| why.contains("device-twin.rules.namespaces")));
        }
    }
}
