//! Services as a bridge follows and sends them: two watches, each with its own delay behind the API, and the views of
//! both that nodes receive.

use cloud_bridge::bridge::ServiceScope;
use cloud_bridge::bridge::slim::made_object;
use cloud_bridge::bridge::world::{Group, Told};
use edge_protocol::message::{Object, ObjectKey};
use serde_json::json;

use crate::api::{Api, Services, Slices};
use crate::rng::Rng;

/// Kind of the groups, as in `cloud_bridge::bridge::told::kinds`.
pub const GROUP: &str = "ServiceViews";
/// Services with their own groups, for every pod.
const EVERYBODYS: [(&str, &str); 2] = [("default", "kubernetes"), ("kube-system", "kube-dns")];
const SERVICE: &str = "ServiceView";
const ENDPOINTS: &str = "EndpointView";

/// Whether the key is of a view that the bridge makes of Services and their endpoints.
pub fn is_view(key: &ObjectKey) -> bool {
    [SERVICE, ENDPOINTS].contains(&key.kind.as_str())
}

/// The watches of one group: what each has delivered, and what was sent.
#[derive(Debug, Default)]
pub struct Watched {
    services: Option<Services>,
    slices: Option<Slices>,
    told: Option<(Services, Slices)>,
}

/// Result of a step.
pub enum News {
    Nothing,
    /// A watch has delivered something.
    Heard,
    Group(Group),
}

impl Watched {
    /// Whether the API has changes that were not sent. `stalled` watches have delivered nothing since their first list.
    pub fn is_behind(&self, api: &Api, stalled: bool) -> bool {
        let (services, slices) = (stalled && self.services.is_some(), stalled && self.slices.is_some());
        (!services && self.services.as_ref() != Some(&api.services))
            || (!slices && self.slices.as_ref() != Some(&api.slices))
            || self.is_due()
    }

    fn is_due(&self) -> bool {
        let both = self.services.as_ref().zip(self.slices.as_ref());
        both.is_some_and(|both| self.told.as_ref().is_none_or(|(services, slices)| both != (services, slices)))
    }

    /// One watch delivers the newest state, or nodes receive what both have delivered.
    pub fn step(&mut self, key: &ObjectKey, api: &Api, stalled: bool, rng: &mut Rng) -> News {
        if !self.is_behind(api, stalled) {
            return News::Nothing;
        }
        let deaf = |heard: bool| stalled && heard;
        match rng.below(3) {
            0 if !deaf(self.services.is_some()) => self.services = Some(api.services.clone()),
            1 if !deaf(self.slices.is_some()) => self.slices = Some(api.slices.clone()),
            _ => {}
        }
        if !self.is_due() || rng.once_in(2) {
            return News::Heard;
        }
        let (Some(services), Some(slices)) = (self.services.clone(), self.slices.clone()) else { return News::Heard };
        let group = objects(&services, &slices, |namespace, name| is_in(key, namespace, name));
        self.told = Some((services, slices));
        News::Group(group.into_iter().map(|object| (object.digest.key.clone(), Told::new(object))).collect())
    }

    /// A watch has ended with an error: the known state is sent again. True if anything was sent before.
    pub fn fail(&mut self) -> bool {
        self.told.take().is_some()
    }

    pub fn is_idle(&self, api: &Api) -> bool {
        self.told.as_ref().is_some_and(|(services, slices)| *services == api.services && *slices == api.slices)
    }
}

/// Whether the group has this Service: the two that every pod may use are groups of their own.
fn is_in(key: &ObjectKey, namespace: &str, name: &str) -> bool {
    let alone = EVERYBODYS.contains(&(namespace, name));
    match (key.namespace.as_str(), key.name.as_str()) {
        ("", _) => true,
        (of, "all") => of == namespace && !alone,
        (of, one) => (of, one) == (namespace, name),
    }
}

fn objects(services: &Services, slices: &Slices, wanted: impl Fn(&str, &str) -> bool) -> Vec<Object> {
    let mut found = Vec::new();
    for ((namespace, name), service) in services {
        if service.elsewhere || !wanted(namespace, name) {
            continue;
        }
        let mut tell = |kind: &str, version: u64| {
            let key = ObjectKey { kind: kind.into(), namespace: (*namespace).into(), name: (*name).into() };
            let body = json!({"kind": kind, "data": {"version": version.to_string()}});
            found.push(made_object(key, service.uid.clone(), body));
        };
        tell(SERVICE, service.version);
        if let Some(version) = slices.get(&(*namespace, *name)) {
            tell(ENDPOINTS, *version);
        }
    }
    found
}

/// The Services that a node with a pod should hold.
pub fn wanted(api: &Api, scope: ServiceScope) -> Vec<Object> {
    let wanted = |namespace: &str, name: &str| match scope {
        ServiceScope::All | ServiceScope::Site => true,
        ServiceScope::Namespaces => namespace == "ns" || EVERYBODYS.contains(&(namespace, name)),
    };
    objects(&api.services, &api.slices, wanted)
}
