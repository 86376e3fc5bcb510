//! A tenant with `edit` in its namespace, and a node with a valid certificate, attack the bridge for an hour, beside
//! honest users. These must be answered in time, the bridge must keep its memory limit, and no process may end.
//!
//! By default four of the attacks, always the same, last two seconds each, with limits for a debug build on a busy
//! host: no process ends, memory is limited, and users are answered afterwards. The hour is for a release build, with
//! all attacks; docs/guarantees.md has the commands.
//! `TEST_SIEGE_SEED` repeats a run, `TEST_SIEGE_ONLY` selects the attacks whose names contain one of these words,
//! `TEST_SIEGE_EACH` sets the seconds of one attack. Each run ends with a table of all attacks.
//!
//! | module | owns |
//! |---|---|
//! | `siege` | runs attacks beside honest users, measures, judges |
//! | `honest` | the honest users and their latencies |
//! | `table` | one line for each attack, and the limits |
//! | `tenant` | the attacks of the tenant |
//! | `node` | the attacks of the node, by `hostile` of `tests/scale` |

// Shared with e2e_hostile_client, which uses more of them.
#[allow(dead_code)]
#[path = "../e2e_hostile_client/client.rs"]
mod client;
mod honest;
#[allow(dead_code)]
#[path = "../e2e_hostile_client/http2.rs"]
mod http2;
mod node;
mod random;
mod siege;
mod table;
mod tenant;

use std::time::Duration;

use sampan_tests::{Cluster, can_run};
use siege::{Siege, Time};
use table::Bounds;

/// Limits for acceptance: a release build on an otherwise idle host.
const STRICT: Bounds = Bounds { p99: Some(Duration::from_millis(100)), growth_kib: 64 << 10 };
/// A debug build beside other programs may be slow.
const LOOSE: Bounds = Bounds { p99: None, growth_kib: 192 << 10 };
/// Seconds of one attack of the hour.
const EACH: u64 = 20;
/// Number of attacks of the short run.
const MOMENT: usize = 4;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

fn hour() -> Time {
    Time {
        each: Duration::from_secs(number("TEST_SIEGE_EACH").unwrap_or(EACH)),
        total: Duration::from_secs(number("TEST_SIEGE_SECONDS").unwrap_or(3600)),
        attacks: usize::MAX,
    }
}

fn moment() -> Time {
    let each = Duration::from_secs(number("TEST_SIEGE_EACH").unwrap_or(2));
    Time { each, total: Duration::ZERO, attacks: MOMENT }
}

/// Whether the API is the embedded one: on a shared cluster a tenant would attack that.
fn can_besiege() -> bool {
    can_run() && std::env::var_os("TEST_KUBECONFIG").is_none()
}

fn tenant(time: Time, bounds: Bounds) {
    let mut siege = Siege::new(Cluster::start("siege"), time);
    // Dropped before the cluster, in whose folder it is.
    let node = siege.cluster.node("honest");
    let tenant = tenant::Tenant::settle(&siege.cluster, &node);
    siege.lay(&tenant.attacks());
    siege.judge(bounds);
}

fn hostile_node(time: Time, bounds: Bounds) {
    let cluster = Cluster::start_with("siege", &["--deleted-nodes-return"]);
    let attacks = node::attacks(&cluster);
    let mut siege = Siege::new(cluster, time);
    siege.lay(&attacks);
    siege.judge(bounds);
}

#[test]
fn a_moment_beside_a_hostile_tenant() {
    if can_besiege() {
        tenant(moment(), LOOSE);
    }
}

#[test]
fn a_moment_beside_a_hostile_node() {
    if can_besiege() {
        hostile_node(moment(), LOOSE);
    }
}

#[test]
#[ignore = "an hour, of a release build on a quiet host"]
fn an_hour_beside_a_hostile_tenant() {
    if can_besiege() {
        tenant(hour(), STRICT);
    }
}

#[test]
#[ignore = "an hour, of a release build on a quiet host"]
fn an_hour_beside_a_hostile_node() {
    if can_besiege() {
        hostile_node(hour(), STRICT);
    }
}
