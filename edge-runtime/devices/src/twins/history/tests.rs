//! Bounds of the history of a property.

use serde_json::json;

use super::*;

fn stamped(value: &str, at: u64) -> Stamped {
    Stamped { value: value.into(), at, unsynchronized: at % 2 == 1 }
}

#[test]
fn numbers_to_a_thousand_are_taken() {
    let of = |value: Value| asked(&json!({"metadata": {"annotations": {ANNOTATION: value}}}));
    assert_eq!(asked(&json!({})), Ok(0));
    assert_eq!((of(json!("0")), of(json!("7")), of(json!("1000"))), (Ok(0), Ok(7), Ok(1_000)));
    for wrong in ["", "-1", "1001", "many", " 7", "7.5", "99999999999999999999999"] {
        assert_eq!(of(json!(wrong)), Err(wrong.to_owned()));
    }
    assert_eq!(of(json!(7)), Err("7".into()), "annotations are texts");
    assert_eq!(of(json!("x".repeat(1_000))).map_err(|text| text.len()), Err(64));
}

#[test]
fn saved_history_is_restored() {
    let mut history = History::new(3);
    for (at, value) in ["a", "a", "b\"\n", "", "ü"].iter().enumerate() {
        history.push("p", &stamped(value, at as u64));
    }
    let rows: Vec<Row> = history.rows("u").collect();
    assert_eq!(history.rows("u").count(), 0, "once");
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0].uid, "history/u/p");
    let mut restored = History::new(3);
    restored.restore("p", &rows[0].record);
    restored.restore("p", "[[1,\"late\"]]");
    for broken in ["", "{", "[1]", "[[\"x\"]]", "[[1,2]]"] {
        restored.restore("q", broken);
    }
    let held: Vec<&Stamped> = restored.of("p").collect();
    assert_eq!(held, [&stamped("b\"\n", 2), &stamped("", 3), &stamped("ü", 4)]);
    assert_eq!((restored.rows("u").count(), restored.of("q").count()), (0, 0));
    assert_eq!(restored.bytes, history.bytes);
}

proptest::proptest! {
    /// Whatever is reported, its parts stay in their bounds, and so do lines that have its rows.
    #[test]
    fn d12_history_is_bounded(
        reports in proptest::collection::vec(("[a-c]", "[\\x00-\\x7f]", 0_usize..3_000), 0..100),
        most in 1_usize..40, share in 0_usize..100_000,
    ) {
        let mut history = History::new(most);
        history.limit(most, share);
        for (at, (property, letter, times)) in reports.iter().enumerate() {
            let value = letter.repeat(*times);
            history.push(property, &stamped(&value, at as u64));
            let mut counted = 0;
            for (name, held) in &history.properties {
                let values: usize = held.list.iter().map(|one| weight(&one.value)).sum();
                assert_eq!(values, held.bytes);
                assert!(held.list.len() <= most && held.bytes <= BYTES_OF_PROPERTY);
                counted += values + PROPERTY + name.len();
            }
            assert_eq!(counted, history.bytes);
            let empty: usize = history.properties.keys().map(|name| PROPERTY + name.len()).sum();
            assert!(history.bytes <= share.max(empty), "{} > {share}", history.bytes);
            if share > 90_000 {
                assert_eq!(history.of(property).last().map(|last| &*last.value), Some(&*value), "the newest is there");
            }
        }
        for row in history.rows("u") {
            assert!(serde_json::to_vec(&row).expect("JSON").len() < 64 << 10);
        }
        history.retain(|_| false);
        assert_eq!(history.bytes, 0);
    }
}
