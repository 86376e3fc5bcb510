//! Which Services it is because of which the kernel takes none: found by trying, without changing anything.

use std::path::Path;
use std::time::{Duration, Instant};

use super::super::firewall;
use super::table::{ServiceName, Tables, Wanted};

/// Longest that is tried; who has not been found innocent by then is an offender.
const PATIENCE: Duration = Duration::from_secs(60);

/// Those of `wanted` that cannot be there together with the others; `None` if not even nothing can.
pub async fn find(nft: &Path, tables: &Tables, wanted: Wanted) -> Option<Vec<ServiceName>> {
    let end = Instant::now() + PATIENCE;
    let mut good = Wanted { pods: wanted.pods, ..Wanted::default() };
    if !fits(nft, tables, &good).await {
        return None;
    }
    let mut offenders = Vec::new();
    let mut parts = vec![Vec::from_iter(wanted.services)];
    while let Some(mut part) = parts.pop() {
        let names: Vec<ServiceName> = part.iter().map(|(name, _)| name.clone()).collect();
        if Instant::now() < end {
            good.services.extend(part.iter().cloned());
            if fits(nft, tables, &good).await {
                continue;
            }
            names.iter().for_each(|name| drop(good.services.remove(name)));
            if part.len() > 1 {
                let rest = part.split_off(part.len() / 2);
                parts.extend([rest, part]);
                continue;
            }
        }
        offenders.extend(names);
    }
    Some(offenders)
}

async fn fits(nft: &Path, tables: &Tables, wanted: &Wanted) -> bool {
    firewall::check(nft, &tables.whole(wanted).script).await.is_ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::rules::of_service;
    use super::super::{EndpointView, Here, ServiceView};
    use super::*;
    use crate::net::namespaces::tests::isolate;

    fn wanted(count: u8, protocol: impl Fn(u8) -> &'static str) -> Wanted {
        let service = |index: u8| {
            let spec = json!({"clusterIPs": [format!("10.96.0.{index}")], "ports": [{"port": 80, "protocol": protocol(index)}]});
            let view = ServiceView::read(&json!({ "spec": spec })).unwrap();
            let name = format!("s{index:03}");
            let items = of_service(("ns", &name), &view, &[], &EndpointView::default(), &Here::default(), &[false]);
            (("ns".to_owned(), name), items)
        };
        Wanted { services: (0..count).map(service).collect(), ..Wanted::default() }
    }

    #[test]
    fn s06_whom_the_kernel_refuses_is_found_and_blocks_nobody_else() {
        if !isolate() {
            return;
        }
        let temp = tempfile::tempdir().unwrap();
        // As a kernel without SCTP might.
        let refusing = temp.path().join("nft");
        std::fs::write(&refusing, "#!/bin/sh\ncat >$0.$$; ! grep -q sctp $0.$$ && exec nft \"$@\" <$0.$$\n").unwrap();
        std::fs::set_permissions(&refusing, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let mut tables = Tables::new("b0", &["10.85.0.0/24".parse().unwrap()]);
        let bad = |index: u8| if index % 7 == 3 { "SCTP" } else { "TCP" };
        let find = |nft: &Path, wanted| smol::block_on(find(nft, &tables, wanted));
        let found = find(&refusing, wanted(20, bad)).unwrap();
        let names: Vec<&str> = found.iter().map(|(_, name)| name.as_str()).collect();
        assert_eq!(names, ["s003", "s010", "s017"]);
        assert_eq!(find(&refusing, wanted(20, |_| "UDP")).unwrap(), []);
        assert_eq!(find(Path::new("/bin/false"), wanted(20, bad)), None, "nobody's fault");
        assert_eq!(find(Path::new("nft"), wanted(20, bad)).unwrap(), [], "this kernel takes all");
        // Nothing was changed by trying.
        let rules = std::process::Command::new("nft").args(["list", "ruleset"]).output().unwrap();
        assert!(rules.stdout.is_empty());
        let mut rest = wanted(20, bad);
        rest.services.retain(|name, _| !found.contains(name));
        let script = tables.replace(&rest).script;
        smol::block_on(firewall::run(&refusing, &script)).unwrap();
    }
}
