//! The template of the current key. Stores keep none: an object is read again when its template is needed, and the
//! template is dropped at the end of the turn. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use super::template::Template;
use super::world::Kind;

/// A template, and the state of the object that had it.
#[derive(Debug)]
pub(crate) struct Held {
    kind: Kind,
    uid: Option<String>,
    generation: Option<i64>,
    template: Template,
}

impl Held {
    /// The template of an object that was read; `None` if it has no template.
    pub(crate) fn of(kind: Kind, object: &Value) -> Option<Self> {
        let template = match kind {
            Kind::ControllerRevision => &object["data"]["spec"]["template"],
            Kind::CronJob => &object["spec"]["jobTemplate"],
            // It is its own, for the templates of its claims.
            Kind::Pod => object,
            _ => &object["spec"]["template"],
        };
        let meta = &object["metadata"];
        Some(Self {
            kind,
            uid: meta["uid"].as_str().map(str::to_owned),
            generation: meta["generation"].as_i64(),
            template: Template::read(object, template)?,
        })
    }

    /// The template of this object, if it was read since its spec changed.
    pub(crate) fn template_of(&self, kind: Kind, meta: &ObjectMeta) -> Option<&Template> {
        let is_same = self.kind == kind && self.uid == meta.uid && self.generation == meta.generation;
        is_same.then_some(&self.template)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn meta(uid: &str, generation: i64) -> ObjectMeta {
        ObjectMeta { uid: Some(uid.to_owned()), generation: Some(generation), ..ObjectMeta::default() }
    }

    #[test]
    fn template_is_of_one_state_of_one_object() {
        let object = json!({"metadata": {"uid": "u", "generation": 2}, "spec": {"template": {
            "metadata": {"labels": {"a": "b"}}, "spec": {"hostname": "h"}}}});
        let held = Held::of(Kind::ReplicaSet, &object).unwrap();
        let template = held.template_of(Kind::ReplicaSet, &meta("u", 2)).unwrap();
        assert_eq!(template.metadata.labels.as_ref().unwrap()["a"], "b");
        assert_eq!(template.spec.get("hostname"), "h");
        for (kind, meta) in
            [(Kind::ReplicaSet, meta("u", 3)), (Kind::ReplicaSet, meta("another", 2)), (Kind::Deployment, meta("u", 2))]
        {
            assert!(held.template_of(kind, &meta).is_none(), "{kind:?} {meta:?}");
        }
    }

    #[test]
    fn kinds_have_their_templates_in_different_places() {
        let template = json!({"spec": {"hostname": "h"}});
        let revision = json!({"data": {"spec": {"template": template}}, "revision": 1});
        let cron_job = json!({"spec": {"jobTemplate": template}});
        let job = json!({"spec": {"template": template}});
        let pod = json!({"metadata": {"name": "a"}, "spec": {"hostname": "h"}});
        let all = [(Kind::ControllerRevision, revision), (Kind::CronJob, cron_job), (Kind::Job, job), (Kind::Pod, pod)];
        for (kind, object) in all {
            assert!(Held::of(kind, &object).is_some(), "{kind:?}");
        }
        assert!(Held::of(Kind::Job, &json!({"spec": {"template": {"spec": 1}}})).is_none());
    }
}
