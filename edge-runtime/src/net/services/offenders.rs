//! Which Services it is because of which the kernel takes none: found by trying, without changing anything.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use super::super::firewall;
use super::item::{Item, TRANSACTION};
use super::table::{ServiceName, Tables, Wanted};
use crate::sys::gather::Gather;
use crate::sys::sort::sort_by_key;

/// Longest that is tried. Those that the kernel has refused by then, alone or with others, are the offenders.
const PATIENCE: Duration = Duration::from_secs(60);

/// Returns the Services of `wanted` that the kernel refuses; `None` if it refuses even an empty table.
///
/// Tries each part without the others, so that each transaction is small. The largest Services come first, because they
/// are the likely causes.
pub async fn find(nft: &Path, tables: &Tables, wanted: Wanted) -> Option<Vec<ServiceName>> {
    let end = Instant::now() + PATIENCE;
    if !fits(nft, tables, &Wanted { pods: wanted.pods, ..Wanted::default() }).await {
        return None;
    }
    let mut offenders = Vec::new();
    // And whether they were refused together with others.
    let mut parts: Vec<(Part, bool)> = portions(wanted.services).into_iter().rev().map(|part| (part, false)).collect();
    while let Some((mut part, refused)) = parts.pop() {
        if Instant::now() < end {
            let services = part.iter().cloned().into_map();
            if fits(nft, tables, &Wanted { services, ..Wanted::default() }).await {
                continue;
            }
            if part.len() > 1 {
                let rest = part.split_off(part.len() / 2);
                parts.extend([(rest, true), (part, true)]);
                continue;
            }
        } else if !refused {
            continue;
        }
        offenders.extend(part.into_iter().map(|(name, _)| name));
    }
    Some(offenders)
}

type Part = Vec<(ServiceName, BTreeMap<Item, String>)>;

/// The largest first, as many together as a transaction takes.
fn portions(services: BTreeMap<ServiceName, BTreeMap<Item, String>>) -> Vec<Part> {
    let mut all = Vec::from_iter(services);
    sort_by_key(&mut all, |(_, items)| Reverse(items.len()));
    let (mut portions, mut size) = (Vec::<Part>::new(), usize::MAX);
    for (name, items) in all {
        size = size.saturating_add(items.len());
        match portions.last_mut().filter(|_| size <= TRANSACTION) {
            Some(part) => part.push((name, items)),
            None => {
                size = items.len();
                portions.push(vec![(name, items)]);
            }
        }
    }
    portions
}

async fn fits(nft: &Path, tables: &Tables, wanted: &Wanted) -> bool {
    firewall::check(nft, &tables.whole(wanted).script).await.is_ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::item::What;
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
    fn the_largest_are_tried_first_and_no_try_is_large() {
        let size = |count: usize| -> BTreeMap<Item, String> {
            (0..count).map(|n| (Item { v6: false, what: What::Chain(n.to_string().into()) }, String::new())).collect()
        };
        let sizes = [1, 5000, 999, 1, 600, 400];
        let services = sizes.iter().enumerate().map(|(n, count)| (("ns".to_owned(), n.to_string()), size(*count)));
        let parts = portions(services.collect());
        let names: Vec<Vec<&str>> = parts.iter().map(|part| part.iter().map(|(name, _)| &*name.1).collect()).collect();
        assert_eq!(names, [vec!["1"], vec!["2"], vec!["4", "5"], vec!["0", "3"]]);
    }

    #[test]
    fn s06_refused_service_is_found_and_blocks_no_other() {
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
