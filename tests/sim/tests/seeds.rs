//! Random faults, seed by seed. `SAMPAN_SIM_SEED=N` runs one, `SAMPAN_SIM_SEEDS=10000` that many fresh ones,
//! `SAMPAN_SIM_SECONDS=600` as many as fit.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::time::{Duration, Instant};

use sampan_sim::rng::Rng;
use sampan_sim::world::Options;
use sampan_sim::{run, run_with};

/// Seeds that always run.
const FIXED: std::ops::Range<u64> = 0..60;

/// Seeds that found a bug before there were Services, and the bug. They always run.
const NAMED: [(u64, &str); 10] = [
    (35, "a pod that a list lacked by mistake was asked for, and the answer with its newest state thrown away"),
    (25, "the watch told late of a pod whose successor the node's first list had shown, and buried that for good"),
    (
        6_805_135_081_817_191_040,
        "a ConfigMap in doubt was not asked for while a pod named it: it stayed, with full lists",
    ),
    (
        4_949_607_732_345_936_971,
        "the watch told of a pod from before a question by name had found it gone: it came back",
    ),
    (46, "a ConfigMap went for a moment, between two pods that name it: allowed, the model was too strict"),
    (13_073_225_723_439_268_957, "a list cut short hid a new pod until the next list: the model now ends the lie"),
    (133_912_001_320_774_687, "a node moved to a bridge whose watch was behind, and got an older state of a pod"),
    (10_232_523_342_066_119_430, "the same with a ConfigMap"),
    (12_266_378_438_182_976_975, "the same with a pod that this bridge had not heard of: it was stopped"),
    (15_600_303_747_627_431_559, "the same with a deleted pod: it came back"),
];

/// Seeds with Services that found a bug.
const NAMED_WITH_SERVICES: [(u64, &str); 3] = [
    (3_777_851_914_455_225_190, "endpoints of a Service that lived on came again, and were taken for deleted ones"),
    (
        7_692_357_917_817_560_268,
        "a node without pods had its Services taken for deleted: its next pod was told of none",
    ),
    (
        6_573_470_361_648_332_010,
        "power went between the end of a ConfigMap and the one in its place, which had one number: the second never came",
    ),
];

/// Time for fresh seeds in a usual run.
const FRESH_S: u64 = 4;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

#[test]
#[allow(clippy::print_stderr)]
fn both_sides_agree_after_any_trouble() {
    if let Some(seed) = number("SAMPAN_SIM_SEED") {
        return run(seed);
    }
    FIXED.for_each(run);
    NAMED.iter().for_each(|(seed, _)| run_with(*seed, None, false));
    NAMED_WITH_SERVICES.iter().for_each(|(seed, _)| run_with(*seed, Options::services(*seed), false));
    let mut fresh = Rng::new(RandomState::new().hash_one(0));
    let started = Instant::now();
    if let Some(count) = number("SAMPAN_SIM_SEEDS") {
        (0..count).for_each(|_| run(fresh.number()));
        eprintln!("{count} fresh seeds passed in {:?}", started.elapsed());
        return;
    }
    let limit = Duration::from_secs(number("SAMPAN_SIM_SECONDS").unwrap_or(FRESH_S));
    let mut count = 0;
    while started.elapsed() < limit {
        run(fresh.number());
        count += 1;
    }
    eprintln!("{count} fresh seeds passed in {:?}", started.elapsed());
}
