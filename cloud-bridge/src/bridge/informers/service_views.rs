//! Views of Services that nodes receive: the same for all nodes of a site, with the endpoints of that site's pods.

use std::collections::BTreeMap;
use std::sync::Arc;

use edge_protocol::message::ObjectKey;
use serde_json::json;
use tokio::sync::watch;

use super::news::{Subscription, What};
use super::service_watch::{Entry, Known, ServiceWatch};
use crate::bridge::endpoint_view::endpoint_view;
use crate::bridge::name::Name;
use crate::bridge::sites::{Members, Sites};
use crate::bridge::slim::made_object;
use crate::bridge::told::groups::{ALL_SERVICES, group_and_site};
use crate::bridge::told::kinds::Kind;
use crate::bridge::world::{Group, Told};

/// Sends a group until aborted. The key's name says which Services it has, and of which site.
pub(super) async fn tell_service_views(
    services: Arc<ServiceWatch>,
    mut sites: watch::Receiver<Sites>,
    to: Subscription,
) {
    let site = group_and_site(&to.key.name).1.map(str::to_owned);
    let (mut known, mut views) = (services.known(), Views::default());
    let marker = marker(&to.key);
    loop {
        let members = site.as_deref().map(|site| Members::of(&sites.borrow_and_update(), site));
        let what = match &*known.borrow_and_update() {
            Known::Nothing => None,
            Known::Failed => Some(What::Failed),
            // Without the right to read Services nodes get none.
            Known::Refused => Some(What::Group(Group::new())),
            Known::All(all) => views.change(all, members).map(|mut group| {
                group.extend(marker.clone());
                What::Group(group)
            }),
        };
        if let Some(what) = what
            && to.tell(what).await.is_none()
        {
            return;
        }
        let changed = tokio::select! {
            changed = known.changed() => changed,
            changed = sites.changed(), if site.is_some() => changed,
        };
        if changed.is_err() {
            return;
        }
    }
}

/// The marker in a group of all Services that the group is complete.
fn marker(group: &ObjectKey) -> Option<(ObjectKey, Arc<Told>)> {
    (group_and_site(&group.name).0 == ALL_SERVICES).then_some(())?;
    let uid = format!("services-{}", group.namespace);
    let (kind, key) = (Kind::ServiceNamespace.name(), Kind::ServiceNamespace.key(&group.namespace, ALL_SERVICES));
    Some((key.clone(), Told::new(made_object(key, uid, json!({ "kind": kind })))))
}

/// The group that was sent last.
#[derive(Default)]
struct Views {
    /// Whether it was sent once: an empty group must be sent too.
    told: bool,
    members: Option<Members>,
    entries: BTreeMap<Name, (Arc<Entry>, Option<Arc<Told>>)>,
}

impl Views {
    /// Returns all views, if one of them has changed.
    fn change(&mut self, all: &BTreeMap<Name, Arc<Entry>>, members: Option<Members>) -> Option<Group> {
        let elsewhere = self.members != members;
        self.members = members;
        let mut changed = !std::mem::replace(&mut self.told, true);
        self.entries.retain(|name, _| {
            let stays = all.contains_key(name);
            changed |= !stays;
            stays
        });
        for (name, entry) in all {
            let old = self.entries.get(name);
            if !elsewhere && old.is_some_and(|(old, _)| Arc::ptr_eq(old, entry)) {
                continue;
            }
            let endpoints = endpoint_view(&entry.view.digest, &entry.slices, self.members.as_ref());
            let same_view = old.is_some_and(|(old, _)| Arc::ptr_eq(&old.view, &entry.view));
            let before = old.and_then(|(_, endpoints)| endpoints.as_ref());
            let same_endpoints =
                before.map(|before| &before.digest) == endpoints.as_ref().map(|endpoints| &endpoints.digest);
            changed |= !same_view || !same_endpoints;
            let endpoints = if same_endpoints { before.map(Arc::clone) } else { endpoints.map(Told::new) };
            self.entries.insert(name.clone(), (Arc::clone(entry), endpoints));
        }
        changed.then(|| self.group())
    }

    fn group(&self) -> Group {
        let mut group = Group::new();
        for ((namespace, name), (entry, endpoints)) in &self.entries {
            let key = |kind: Kind| kind.key(namespace, name);
            group.insert(key(Kind::ServiceView), Arc::clone(&entry.view));
            group.extend(endpoints.as_ref().map(|endpoints| (key(Kind::EndpointView), Arc::clone(endpoints))));
        }
        group
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name() -> Name {
        ("shop".into(), "web".into())
    }

    fn view(uid: &str) -> Arc<Told> {
        Told::new(made_object(Kind::ServiceView.key("shop", "web"), uid.to_owned(), json!({})))
    }

    fn all(view: &Arc<Told>) -> BTreeMap<Name, Arc<Entry>> {
        BTreeMap::from([(name(), Arc::new(Entry { view: Arc::clone(view), slices: Vec::new() }))])
    }

    #[test]
    fn group_is_sent_when_a_view_has_changed() {
        let (mut views, old, new) = (Views::default(), view("u"), view("v"));
        let mut sent = |all: &BTreeMap<_, _>| views.change(all, None).map(|group| group.len());
        assert_eq!(sent(&BTreeMap::new()), Some(0), "an empty group is an answer");
        assert_eq!(sent(&BTreeMap::new()), None);
        assert_eq!(sent(&all(&old)), Some(1));
        assert_eq!(sent(&all(&old)), None, "another entry with the same text");
        assert_eq!(sent(&all(&new)), Some(1));
        assert_eq!(sent(&BTreeMap::new()), Some(0));
    }

    #[test]
    fn only_groups_of_all_services_are_marked_as_complete() {
        let marked = |name: &str| marker(&Kind::ServiceViews.key("shop", name)).map(|(key, _)| key);
        assert_eq!(marked("all@hall"), Some(Kind::ServiceNamespace.key("shop", "all")));
        assert_eq!((marked("all").is_some(), marked("kubernetes"), marked("kube-dns@hall")), (true, None, None));
    }
}
