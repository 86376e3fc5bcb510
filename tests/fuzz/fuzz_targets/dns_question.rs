//! Packets from pods to the node's DNS.
#![no_main]

use std::time::Duration;

use edge_runtime::dns::cache::{Cache, key};
use edge_runtime::dns::wire::{Code, Data, LONGEST, Record, answer, answers, question, refusal};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let asked = match question(data) {
        Ok(asked) => asked,
        Err(Some((id, code))) => {
            assert_eq!(refusal(id, code).len(), 12);
            return;
        }
        Err(None) => return,
    };
    assert!(asked.raw.len() <= 255 + 4, "a name has 255 bytes at most");
    let name = asked.name.clone().unwrap_or_default();
    assert!(name.bytes().all(|byte| !byte.is_ascii_uppercase()));
    let records: Vec<Record> = (0..data.len() % 200)
        .map(|number| Record { name: name.clone(), data: Data::Address([10, 0, 0, number as u8].into()) })
        .collect();
    for tcp in [false, true] {
        let told = answer(&asked, Code::NoError, &records, &records, "cluster.local", tcp);
        assert!(told.len() <= if tcp { LONGEST } else { 1232 });
        assert!(answers(&told, &asked), "an answer is one to its question");
        assert!(question(&told).is_err(), "and no question itself");
        let mut cache = Cache::default();
        let now = Duration::from_secs(1);
        cache.put(key(data, 12 + asked.raw.len()), &told, [10, 0, 0, 1].into(), now);
        if let Some(again) = cache.get(&key(data, 12 + asked.raw.len()), 7, &asked.raw, now, false) {
            assert_eq!((&again[..2], again.len()), (&[0, 7][..], told.len()));
        }
    }
});
