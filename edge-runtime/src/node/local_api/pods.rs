//! Which pods may use the local API, and with which tokens. Pure.

use ring::digest::{SHA256, digest};
use sampan_api_control::Pod;

use crate::config::LocalApiConfig;
use crate::node::pods::Entry;
use crate::pod::record::PodSource;

/// Account of a pod that names none (K8s plugin/pkg/admission/serviceaccount/admission.go, `DefaultServiceAccountName`).
const DEFAULT_ACCOUNT: &str = "default";

/// The pod as the helper is told of it. `None`: it may not use the API, or no more: its object is gone, or it has ended.
pub(super) fn line<'a>(config: &LocalApiConfig, entry: &Entry, tokens: impl Iterator<Item = &'a str>) -> Option<Pod> {
    let record = &entry.record;
    let is_gone = record.deletion.as_ref().is_some_and(|deletion| deletion.object_gone);
    let is_over = is_gone || record.terminal.is_some();
    if is_over || record.source != PodSource::Api || !config.is_used_by(&entry.pod) {
        return None;
    }
    let tokens: Vec<String> = tokens.map(hash).collect();
    let account = entry.pod.spec.as_ref().and_then(|spec| spec.service_account_name.clone());
    (!tokens.is_empty()).then(|| Pod {
        uid: record.uid.clone(),
        namespace: record.namespace.clone(),
        name: record.name.clone(),
        account: account.unwrap_or_else(|| DEFAULT_ACCOUNT.to_owned()),
        tokens,
    })
}

/// SHA-256 in hex, lower case.
fn hash(token: &str) -> String {
    digest(&SHA256, token.as_bytes()).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use serde_json::json;

    use super::*;
    use crate::config::Listen;
    use crate::pod::clock::{Mono, Now};
    use crate::pod::record::{Deletion, PodRecord};

    fn entry(source: PodSource) -> Entry {
        let now = Now { wall: jiff::Timestamp::UNIX_EPOCH, mono: Mono(0), boot_id: "b".into() };
        let metadata = json!({"name": "p", "annotations": {"sampan.dev/local-api": "true"}});
        let pod = serde_json::from_value(json!({"metadata": metadata, "spec": {"containers": []}})).unwrap();
        Entry::new(Rc::new(pod), PodRecord::new("u", "ns", "p", source, &now))
    }

    fn told(entry: &Entry, tokens: &[&str]) -> Option<Pod> {
        let config = LocalApiConfig { listen: Listen::Gateway, ..LocalApiConfig::default() };
        line(&config, entry, tokens.iter().copied())
    }

    #[test]
    fn pod_is_told_with_hashes_of_its_tokens() {
        let pod = told(&entry(PodSource::Api), &["abc"]).unwrap();
        assert_eq!((pod.account.as_str(), pod.namespace.as_str()), ("default", "ns"));
        // The example of FIPS 180-2.
        assert_eq!(pod.tokens, ["ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"]);
        assert_eq!(told(&entry(PodSource::Api), &[]), None);
        assert_eq!(line(&LocalApiConfig::default(), &entry(PodSource::Api), ["abc"].into_iter()), None, "it is off");
    }

    /// L3: from the tombstone on, and not only when its containers have ended.
    #[test]
    fn pod_whose_object_is_gone_is_not_told() {
        let mut gone = entry(PodSource::Api);
        let deletion = Deletion { requested_at: Mono(0), grace_s: 30, object_gone: true, reported: false };
        gone.record.deletion = Some(deletion);
        assert_eq!(told(&gone, &["abc"]), None);
        assert_eq!(told(&entry(PodSource::Static), &["abc"]), None);
    }
}
