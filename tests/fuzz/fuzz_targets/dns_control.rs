//! Messages to the DNS helper from any client of its socket, and its answers afterwards.
#![no_main]

use edge_runtime::dns::interests::Interests;
use edge_runtime::dns::zone::{Answer, Cluster, Zone};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(text) = std::str::from_utf8(data) {
        let interests = Interests::read(text);
        assert_eq!(Interests::read(&interests.text()), interests, "interests read the same when they are read again");
    }
    let Ok(cluster) = serde_json::from_slice::<Cluster>(data) else { return };
    let domain = cluster.domain.to_ascii_lowercase();
    let services: Vec<(String, String)> =
        cluster.services.iter().map(|service| (service.name.clone(), service.namespace.clone())).collect();
    let zone = Zone::new(cluster);
    let mut names = vec![domain.clone(), format!("svc.{domain}"), "1.0.0.10.in-addr.arpa".to_owned()];
    for (name, namespace) in services.into_iter().take(8) {
        names.push(format!("{name}.{namespace}.svc.{domain}"));
        names.push(format!("_http._tcp.{name}.{namespace}.svc.{domain}"));
        names.push(format!("{namespace}.svc.{domain}"));
        names.push(format!("10-0-0-1.{namespace}.pod.{domain}"));
    }
    for name in &names {
        for kind in [1, 5, 6, 12, 16, 28, 33, 255] {
            if let Answer::Known(_, records, _) = zone.answer(name, kind, 512) {
                assert!(records.len() <= data.len(), "no more is answered than was told");
            }
            let _ = zone.interest(name);
        }
    }
});
