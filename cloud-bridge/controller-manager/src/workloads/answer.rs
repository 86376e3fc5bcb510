//! An object in an answer of the API, converted for its store, and its template if it was requested. A large one takes
//! long: the caller converts it on another thread. Pure.

use kube::runtime::watcher::Event;
use serde_json::Value;

use super::held::Held;
use super::world::{Kind, Watched};

/// An object in an answer, as far as controllers need it.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The name of the object: the API may have made it.
    pub(crate) name: Option<String>,
    /// Its template, if it was read for that and has one.
    pub(crate) held: Option<Held>,
    /// The object for its store. `None` if it cannot be read: the watch reports why.
    pub(crate) object: Option<Watched>,
}

impl Answer {
    /// Reads an object of a kind. `template`: with its template.
    pub(crate) fn read(kind: Kind, template: bool, object: Value) -> Self {
        Self {
            name: object["metadata"]["name"].as_str().map(str::to_owned),
            held: if template { Held::of(kind, &object) } else { None },
            object: Watched::read(kind, Event::Apply(object)).ok(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn answer_has_a_template_if_asked_for() {
        let set = json!({"metadata": {"name": "web"}, "spec": {"template": {"spec": {"hostname": "h"}}}});
        let read = |template| Answer::read(Kind::ReplicaSet, template, set.clone());
        assert_eq!((read(false).held.is_some(), read(true).held.is_some()), (false, true));
        assert_eq!(read(false).name.as_deref(), Some("web"));
        assert!(matches!(read(true).object, Some(Watched::ReplicaSet(Event::Apply(_)))));
    }

    #[test]
    fn managers_of_fields_are_not_kept() {
        let pod = json!({"metadata": {"name": "a", "managedFields": [{"manager": "kubelet"}]}});
        let Some(Watched::Pod(Event::Apply(pod))) = Answer::read(Kind::Pod, false, pod).object else { unreachable!() };
        assert_eq!((pod.metadata.name.as_deref(), pod.metadata.managed_fields), (Some("a"), None));
    }

    #[test]
    fn unreadable_answer_is_left_to_the_watch() {
        let answer = Answer::read(Kind::Pod, false, json!({"metadata": {"name": "a", "uid": 1}}));
        assert_eq!((answer.name.as_deref(), answer.object.is_none()), (Some("a"), true));
    }
}
