//! Limits of events, by object and by text.

use super::*;

fn at(seconds: u64) -> Mono {
    Mono(seconds * 1000)
}

fn event(object: &str, message: &str) -> Value {
    json!({"involvedObject": {"kind": "Pod", "namespace": "n", "name": object, "uid": object},
            "type": "Normal", "reason": "R", "message": message, "firstTimestamp": message, "count": 1})
}

#[test]
fn a_flood_about_one_object_is_cut_off() {
    let mut correlator = EventCorrelator::default();
    let mut take = |object: &str, second| correlator.take(event(object, "m"), at(second), false, |_| None).is_some();
    assert_eq!((0..100).filter(|_| take("a", 0)).count(), 25);
    assert!(take("b", 0), "another object has its own budget");
    assert!(!take("a", 299));
    assert!(take("a", 300) && !take("a", 301), "one more every five minutes");
}

#[test]
fn many_texts_become_one_series() {
    let mut correlator = EventCorrelator::default();
    let mut take = |text: &str, second| {
        let taken = correlator.take(event("a", text), at(second), false, |_| None).unwrap();
        taken["message"].as_str().unwrap().to_owned()
    };
    for n in 0..9 {
        assert_eq!(take(&n.to_string(), 0), n.to_string());
    }
    assert_eq!(take("9", 1), "(combined from similar events): 9");
    assert_eq!(take("0", 1), "0", "a known text stays");
    assert_eq!(take("9", 602), "9", "and it begins again after ten minutes");
}

#[test]
fn repeats_without_a_link_are_one_row_with_a_count() {
    let mut correlator = EventCorrelator::default();
    let first = correlator.take(event("a", "m"), at(0), true, |_| None).unwrap();
    correlator.stored(&first, 7);
    let mut second = event("a", "m");
    second["firstTimestamp"] = json!("later");
    let rows = |row| (row == 7).then(|| first.clone());
    let second = correlator.take(second, at(9), true, rows).unwrap();
    assert_eq!((&second["count"], &second["firstTimestamp"]), (&json!(2), &json!("m")));
    assert_eq!(correlator.dropped(), [7]);
    correlator.stored(&second, 8);
    let online = correlator.take(event("a", "m"), at(10), false, |_| None).unwrap();
    assert_eq!(online["count"], 1, "the bridge counts");
    assert!(correlator.dropped().is_empty());
    assert_eq!(correlator.take(event("a", "m"), at(11), true, |_| Some(second.clone())).unwrap()["count"], 1);
}

#[test]
fn memory_is_bounded() {
    let mut correlator = EventCorrelator::default();
    for n in 0..2 * REMEMBERED as u64 {
        let taken = correlator.take(event(&n.to_string(), "m"), at(n), true, |_| None).unwrap();
        correlator.stored(&taken, n);
    }
    assert!(correlator.budgets.0.len() <= REMEMBERED && correlator.groups.0.len() <= REMEMBERED);
    assert!(correlator.waiting.0.len() <= REMEMBERED);
    let oldest = correlator.waiting.0.iter().map(|(_, row)| *row).min();
    assert_eq!(oldest, Some(REMEMBERED as u64), "the newest are kept");
}

#[test]
fn budget_never_grows_beyond_a_burst() {
    let mut correlator = EventCorrelator::default();
    let mut taken = |second| (0..100).filter(|_| correlator.within_budget(&event("a", "m"), at(second))).count();
    assert_eq!(taken(10), 25);
    assert_eq!(taken(0), 0, "an older reading refills nothing");
    assert_eq!((taken(309), taken(310)), (0, 1));
    assert_eq!((taken(909), taken(910)), (1, 1), "the rest of the time counts, too");
    assert_eq!(taken(1_000_000), 25);
}

#[test]
fn series_ends_after_its_window_and_not_at_it() {
    for (pause, expected) in [(600, "(combined from similar events): 10"), (601, "10")] {
        let mut correlator = EventCorrelator::default();
        let mut take = |text: &str, second| {
            let mut event = event("a", text);
            correlator.combine(&mut event, at(second));
            event["message"].as_str().unwrap().to_owned()
        };
        (0..10).for_each(|n| drop(take(&n.to_string(), 0)));
        assert_eq!(take("10", pause), expected, "{pause} s");
    }
}

#[test]
fn event_without_fields_is_counted_like_any_other() {
    let mut correlator = EventCorrelator::default();
    let taken = (0..30).filter(|_| correlator.take(json!({}), at(0), true, |_| None).is_some());
    assert_eq!(taken.count(), 25);
}
