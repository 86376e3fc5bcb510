//! Answers of other name servers, or of an attacker that poses as one.
#![no_main]

use std::time::Duration;

use edge_runtime::dns::cache::{Cache, key};
use edge_runtime::dns::wire::{answers, question};
use libfuzzer_sys::fuzz_target;
use sampan_sys::resolve::wire as addresses;

fuzz_target!(|data: &[u8]| {
    for kind in [addresses::RecordType::A, addresses::RecordType::Aaaa] {
        let _ = addresses::answer(data, 7, "a.b", kind);
    }
    // The question that the answer contains.
    let mut packet = data.to_vec();
    if let Some(flags) = packet.get_mut(2) {
        *flags &= 0x07;
    }
    let Ok(asked) = question(&packet) else { return };
    let _ = answers(data, &asked);
    let mut cache = Cache::default();
    let key = key(&packet, 12 + asked.raw.len());
    cache.put(key.clone(), data, [10, 0, 0, 1].into(), Duration::ZERO);
    for (age, stale) in [(0, false), (1, false), (4_000, true), (100_000, true)] {
        if let Some(told) = cache.get(&key, 9, &asked.raw, Duration::from_secs(age), stale) {
            assert_eq!(told.len(), data.len());
            assert_eq!(told[..2], [0, 9]);
            assert_eq!(told[12..12 + asked.raw.len()], asked.raw[..]);
        }
    }
});
