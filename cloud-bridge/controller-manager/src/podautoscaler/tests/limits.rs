//! How fast, and how far.

use serde_json::json;

use super::super::memory::Memory;
use super::*;

#[test]
fn scaling_down_waits_for_five_minutes_and_begins_anew_after_a_restart() {
    let mut case = Case::new(json!({}), &[Some("500m"), Some("500m"), Some("500m"), Some("500m")]);
    assert_eq!(case.turn(), 4);
    case.uses(&[Some("100m"); 4]);
    for _ in 0..20 {
        case.passes(15);
        assert_eq!(case.turn(), 4);
        assert_eq!(case.conditions()["AbleToScale"], "True ScaleDownStabilized");
    }
    case.passes(1);
    assert_eq!(case.turn(), 1);
    let mut case = Case::new(json!({}), &[Some("100m"); 4]);
    assert_eq!(case.turn(), 4, "the first look knows of nothing before it");
    case.passes(301);
    assert_eq!(case.turn(), 1);
}

#[test]
fn scaling_up_is_bounded_by_rate_and_by_the_greatest_number() {
    let mut case = Case::new(json!({"maxReplicas": 100}), &[Some("9")]);
    assert_eq!(case.turn(), 4);
    assert_eq!(case.conditions()["ScalingLimited"], "True ScaleUpLimit");
    assert_eq!(case.conditions()["AbleToScale"], "True SucceededRescale");
    case.uses(&[Some("9"); 4]);
    assert_eq!(case.turn(), 8);
    let mut case = Case::new(json!({"maxReplicas": 3}), &[Some("9"), Some("9")]);
    assert_eq!(case.turn(), 3);
    assert_eq!(case.conditions()["ScalingLimited"], "True TooManyReplicas");
    let mut case = Case::new(json!({"minReplicas": 2, "behavior": at_once()["behavior"]}), &[Some("0"); 3]);
    assert_eq!(case.turn(), 2);
    assert_eq!(case.conditions()["ScalingLimited"], "True TooFewReplicas");
}

#[test]
fn policies_bound_what_changes_in_a_period() {
    let rules = |kind: &str, value: i64, select: &str| {
        json!({"stabilizationWindowSeconds": 0, "selectPolicy": select,
            "policies": [{"type": kind, "value": value, "periodSeconds": 60}]})
    };
    let behavior = json!({"scaleUp": rules("Pods", 1, "Max"), "scaleDown": rules("Percent", 50, "Max")});
    let mut case = Case::new(json!({"behavior": behavior}), &[Some("1"), Some("1")]);
    assert_eq!(case.turn(), 3);
    case.uses(&[Some("1"); 3]);
    case.passes(30);
    assert_eq!(case.turn(), 3, "one was added within the minute");
    case.passes(31);
    assert_eq!(case.turn(), 4);
    case.uses(&[Some("0"); 4]);
    case.passes(61);
    assert_eq!(case.turn(), 2);
    assert_eq!(case.conditions()["ScalingLimited"], "True ScaleDownLimit");
    case.uses(&[Some("0"); 2]);
    assert_eq!(case.turn(), 2);
    let behavior = json!({"scaleUp": rules("Pods", 5, "Disabled"), "scaleDown": rules("Pods", 5, "Disabled")});
    for use_ in ["9", "0"] {
        assert_eq!(wanted(&mut Case::new(json!({"behavior": behavior}), &[Some(use_); 2])), 2);
    }
}

#[test]
fn a_stabilized_scale_up_takes_the_least_that_was_asked_for() {
    let mut behavior = at_once()["behavior"].clone();
    behavior["scaleUp"]["stabilizationWindowSeconds"] = json!(60);
    let mut case = Case::new(json!({"behavior": behavior}), &[Some("500m"), Some("500m")]);
    assert_eq!(case.turn(), 2);
    case.uses(&[Some("1"), Some("1")]);
    case.passes(30);
    assert_eq!(case.turn(), 2);
    assert_eq!(case.conditions()["AbleToScale"], "True ScaleUpStabilized");
    case.passes(31);
    assert_eq!(case.turn(), 4);
}

#[test]
fn a_tolerance_of_a_direction_counts_in_it() {
    let mut behavior = at_once()["behavior"].clone();
    behavior["scaleUp"]["tolerance"] = json!("500m");
    let mut case = Case::new(json!({"behavior": behavior}), &[Some("700m"), Some("700m")]);
    assert_eq!(wanted(&mut case), 2);
    case.uses(&[Some("760m"), Some("760m")]);
    assert_eq!(wanted(&mut case), 4);
    case.uses(&[Some("440m"), Some("440m")]);
    assert_eq!(wanted(&mut case), 2, "rounded up");
    case.uses(&[Some("240m"), Some("240m")]);
    assert_eq!(wanted(&mut case), 1);
}

#[test]
fn s15_random_uses_and_silences_stay_within_bounds() {
    let mut seed = 0x9e37_79b9_u64;
    let mut next = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    for _ in 0..60 {
        let mut case = Case::new(json!({}), &[Some("500m"); 3]);
        for _ in 0..60 {
            let before = case.scale.as_ref().unwrap().replicas();
            let known: Vec<Option<String>> =
                (0..before).map(|_| (next(4) > 0).then(|| format!("{}m", next(2000)))).collect();
            let uses: Vec<Option<&str>> = known.iter().map(Option::as_deref).collect();
            case.uses(&uses);
            // A restarted program has no state.
            if next(20) == 0 {
                case.memory = Memory::default();
            }
            let silent = uses.iter().all(Option::is_none);
            let after = case.turn();
            assert!((1..=10).contains(&after) && after <= (2 * before).max(4), "{before} -> {after}");
            assert!(!silent || after == before, "nobody told anything: {before} -> {after}");
            case.passes(next(120));
        }
    }
}
