//! Service account tokens of projected volumes: which ones a pod wants, when each is due for a new one, how its file
//! is owned. Pure; asking for them is the node's business.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, ServiceAccountTokenProjection};
use serde::{Deserialize, Serialize};

use super::spec::containers;

/// Kind under which a lookup of objects finds tokens: namespace is the pod's uid, name is
/// [`Wanted::name`].
pub const KIND: &str = "ServiceAccountToken";

/// `expirationSeconds` when a projection does not say.
const DEFAULT_SECONDS: i64 = 3600;
/// No token is used longer than this, however long it would be good for (`maxTTL` of the kubelet's token manager).
const MAX_AGE: Duration = Duration::from_secs(24 * 3600);
/// Spread of the refresh, so that nodes that started together do not ask together (`maxJitter`).
const MAX_JITTER_MS: u64 = 10_000;

/// One kind of token that a pod's volumes ask for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Wanted {
    /// Empty for the API server's own.
    pub audience: String,
    pub seconds: i64,
}

impl Wanted {
    pub fn of(source: &ServiceAccountTokenProjection) -> Self {
        Self {
            audience: source.audience.clone().unwrap_or_default(),
            seconds: source.expiration_seconds.unwrap_or(DEFAULT_SECONDS),
        }
    }

    /// Name for lookups; a number has no slash, so that the first one ends it.
    pub fn name(&self) -> String {
        format!("{}/{}", self.seconds, self.audience)
    }
}

/// Every token that the pod's volumes ask for.
pub fn wanted(pod: &Pod) -> BTreeSet<Wanted> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let sources = volumes.filter_map(|volume| volume.projected.as_ref()).flat_map(|p| p.sources.iter().flatten());
    let mut wanted = BTreeSet::new();
    wanted.extend(sources.filter_map(|source| source.service_account_token.as_ref()).map(Wanted::of));
    wanted
}

/// A token as the store keeps it. Kept past its end: a program that cannot reach the API anyway is better off with an
/// old token than with none.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    pub token: String,
    pub issued: Timestamp,
    pub expires: Timestamp,
}

impl Held {
    /// When to ask for the next one: at 80 % of its life or after a day, less some jitter
    /// (K8s pkg/kubelet/token/token_manager.go, `requiresRefresh`). `random` spreads.
    pub fn refresh_at(&self, random: u32) -> Timestamp {
        let life = self.expires.duration_since(self.issued);
        let life = Duration::try_from(life).unwrap_or_default();
        let jitter = Duration::from_millis(u64::from(random) * MAX_JITTER_MS / u64::from(u32::MAX));
        let age = (life * 4 / 5).min(MAX_AGE).saturating_sub(jitter.min(life / 10));
        self.issued.checked_add(age).unwrap_or(self.expires)
    }
}

/// The one user that all containers of the pod run as, if there is one: owner of token files
/// (K8s pkg/volume/util/util.go, `FsUserFrom`).
pub fn common_user(pod: &Pod) -> Option<u32> {
    let spec = pod.spec.as_ref()?;
    let of_pod = spec.security_context.as_ref().and_then(|security| security.run_as_user);
    let users: Vec<Option<i64>> = containers(spec)
        .map(|container| container.security_context.as_ref().and_then(|s| s.run_as_user).or(of_pod))
        .collect();
    let first = users.first().copied().flatten()?;
    let all = users.iter().all(|user| *user == Some(first));
    all.then(|| u32::try_from(first).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(spec: serde_json::Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).unwrap()
    }

    #[test]
    fn each_kind_of_token_is_wanted_once() {
        let pod = pod(json!({"containers": [], "volumes": [
            {"name": "a", "projected": {"sources": [
                {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}},
                {"serviceAccountToken": {"path": "vault", "audience": "vault"}}, {"secret": {"name": "x"}}]}},
            {"name": "b", "projected": {"sources": [
                {"serviceAccountToken": {"path": "again", "expirationSeconds": 3607}}]}}]}));
        let names: Vec<String> = wanted(&pod).iter().map(Wanted::name).collect();
        assert_eq!(names, ["3607/", "3600/vault"]);
    }

    #[test]
    fn a_token_is_due_at_four_fifths_of_its_life_or_after_a_day() {
        let time = |text: &str| text.parse::<Timestamp>().unwrap();
        let held = |expires| Held { token: "t".into(), issued: time("2026-01-01T00:00:00Z"), expires: time(expires) };
        assert_eq!(held("2026-01-01T01:00:00Z").refresh_at(0), time("2026-01-01T00:48:00Z"));
        assert_eq!(held("2026-01-01T01:00:00Z").refresh_at(u32::MAX), time("2026-01-01T00:47:50Z"));
        assert_eq!(held("2027-01-01T00:00:00Z").refresh_at(0), time("2026-01-02T00:00:00Z"));
        // A life shorter than the jitter, and one that ends before its beginning.
        assert_eq!(held("2026-01-01T00:00:10Z").refresh_at(u32::MAX), time("2026-01-01T00:00:07Z"));
        assert_eq!(held("2025-01-01T00:00:00Z").refresh_at(7), time("2026-01-01T00:00:00Z"));
    }

    #[test]
    fn the_owner_is_the_user_of_all_containers() {
        let user = |spec| common_user(&pod(spec));
        let run_as = |user: i64| json!({"runAsUser": user});
        assert_eq!(user(json!({"containers": [{"name": "a"}]})), None);
        assert_eq!(user(json!({"securityContext": run_as(7), "containers": [{"name": "a"}]})), Some(7));
        let both = json!({"securityContext": run_as(7), "containers": [{"name": "a"},
            {"name": "b", "securityContext": run_as(8)}]});
        assert_eq!(user(both), None);
        let one = json!({"containers": [{"name": "a", "securityContext": run_as(8)}, {"name": "b"}]});
        assert_eq!(user(one), None);
        let init = json!({"initContainers": [{"name": "i", "securityContext": run_as(8)}],
            "containers": [{"name": "a", "securityContext": run_as(8)}]});
        assert_eq!(user(init), Some(8));
    }
}
