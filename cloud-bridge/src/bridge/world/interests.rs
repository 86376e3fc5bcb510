//! Namespaces whose Services a node needs because its pods have resolved their names. Pure.
//!
//! Every node may read Services (K8s plugin/pkg/auth/authorizer/node). But a hostile node must not make the bridge
//! watch arbitrary namespaces: it has few interests, and may add new ones only at a limited rate.

use std::collections::BTreeSet;
use std::time::Duration;

use edge_protocol::version::MAX_INTERESTS;

/// Interval after which a node may name one more namespace.
const ANOTHER_AFTER: Duration = Duration::from_secs(10);

/// Interests of one node.
#[derive(Debug, Default)]
pub(super) struct Interests {
    pub(super) names: BTreeSet<String>,
    /// Number of new ones, less one for each elapsed [`ANOTHER_AFTER`].
    taken: usize,
    /// Time up to which these were subtracted.
    forgiven: Duration,
}

impl Interests {
    /// Whether a new one may be added; `now` is the time since any fixed moment.
    fn take(&mut self, now: Duration) -> bool {
        let times = now.saturating_sub(self.forgiven).as_secs() / ANOTHER_AFTER.as_secs();
        let times = usize::try_from(times).unwrap_or(usize::MAX);
        self.taken = self.taken.saturating_sub(times);
        self.forgiven = if times == 0 { self.forgiven } else { now };
        let free = self.taken < MAX_INTERESTS;
        self.taken += usize::from(free);
        free
    }

    pub(super) fn set<'a>(&mut self, namespaces: impl Iterator<Item = &'a String>, now: Duration) {
        let old = std::mem::take(&mut self.names);
        for name in namespaces.filter(|name| is_label(name)).take(MAX_INTERESTS) {
            if old.contains(name) || self.names.contains(name) || self.take(now) {
                self.names.insert(name.clone());
            }
        }
    }
}

/// Whether the text may be the name of a namespace (RFC 1123).
fn is_label(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&name.len()) && name.bytes().all(plain) && !name.starts_with('-') && !name.ends_with('-')
}

#[cfg(test)]
mod tests {
    use edge_protocol::version::Wants;

    use super::super::{Effect, World};
    use super::*;
    use crate::bridge::told::groups::{ServiceScope, service_views};

    const SERVICES: Wants =
        Wants { services: true, routes: false, policies: false, devices: false, rules: false, api: false, csi: false };

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn words(effects: &[Effect]) -> Vec<String> {
        let word = |effect: &Effect| match effect {
            Effect::Watch { key, .. } => format!("watch {}", key.namespace),
            Effect::Unwatch { key } => format!("unwatch {}", key.namespace),
            other => format!("{other:?}"),
        };
        effects.iter().map(word).collect()
    }

    fn world(scope: ServiceScope) -> World {
        let mut world = World::new(scope);
        for node in ["a", "b"] {
            world.add_node(node);
            let _ = world.wants(node, SERVICES, None);
        }
        world
    }

    #[test]
    fn what_nodes_are_interested_in_is_watched_once_and_as_long_as_they_are() {
        let mut world = world(ServiceScope::Namespaces);
        let mut tell = |node: &str, of: &[&str]| words(&world.interested(node, &names(of), Duration::ZERO));
        assert_eq!(tell("a", &["shop", "crm"]), ["watch crm", "watch shop"]);
        assert_eq!(tell("b", &["shop"]), [""; 0]);
        assert_eq!(tell("a", &["crm"]), [""; 0]);
        assert_eq!(tell("b", &[]), ["unwatch shop"]);
        assert_eq!(words(&world.drop_node("a")), ["unwatch crm"]);
        assert_eq!(words(&world.interested("none", &names(&["x"]), Duration::ZERO)), [""; 0]);
    }

    #[test]
    fn who_wants_no_services_or_is_told_all_has_no_interests() {
        for scope in [ServiceScope::Site, ServiceScope::All] {
            let mut told_all = world(scope);
            assert_eq!(words(&told_all.interested("a", &names(&["shop"]), Duration::ZERO)), [""; 0]);
        }
        let mut world = world(ServiceScope::Namespaces);
        let _ = world.interested("a", &names(&["shop"]), Duration::ZERO);
        assert_eq!(words(&world.wants("a", Wants::default(), None)), ["unwatch shop"]);
        assert_eq!(words(&world.interested("a", &names(&["shop"]), Duration::ZERO)), [""; 0]);
    }

    #[test]
    fn a_hostile_node_has_the_bridge_watch_little_and_nothing_that_cannot_be() {
        let mut world = world(ServiceScope::Namespaces);
        let odd = names(&["", "Shop", "a.b", "-a", "a-", "a/b", "a b", &"x".repeat(64)]);
        assert_eq!(words(&world.interested("a", &odd, Duration::ZERO)), [""; 0]);
        let mut watched = 0;
        for turn in 0..100 {
            let all: Vec<String> = (0..MAX_INTERESTS).map(|number| format!("n-{turn}-{number}")).collect();
            let told = words(&world.interested("a", &all, Duration::from_secs(1)));
            watched += told.iter().filter(|word| word.starts_with("watch")).count();
        }
        assert_eq!(watched, MAX_INTERESTS);
        let told = words(&world.interested("a", &names(&["x", "y", "z"]), Duration::from_secs(21)));
        assert_eq!(told, ["watch x", "watch y"]);
    }

    #[test]
    fn a_list_waits_for_what_the_node_is_interested_in() {
        let mut world = world(ServiceScope::Namespaces);
        let _ = world.interested("a", &names(&["shop"]), Duration::ZERO);
        world.refresh("a", 1);
        let round = world.round();
        let told = world.seed("a", round, vec![], None);
        assert!(!told.iter().any(|effect| matches!(effect, Effect::Listed { .. })), "{told:?}");
        let told = world.group_present(
            &service_views("shop", ServiceScope::Namespaces, None)[0],
            crate::bridge::world::Group::new(),
        );
        assert_eq!(told, [Effect::Listed { node: "a".into(), session: 1 }]);
    }
}
