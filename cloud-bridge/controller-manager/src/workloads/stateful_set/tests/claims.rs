//! Ownership and deletion of the claims of a StatefulSet.

use serde_json::json;

use super::*;

fn owners(model: &Model, claim: &str) -> Vec<String> {
    let owners = model.get(Kind::PersistentVolumeClaim, claim)["metadata"]["ownerReferences"].as_array().cloned();
    owners.unwrap_or_default().iter().map(|owner| owner["kind"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn claims_go_with_the_set_with_a_pod_that_is_scaled_away_or_with_neither() {
    for (deleted, scaled, kept, gone) in [
        ("Retain", "Retain", &[] as &[&str], &[] as &[&str]),
        ("Delete", "Retain", &["StatefulSet"], &["StatefulSet"]),
        ("Retain", "Delete", &[], &["Pod"]),
        ("Delete", "Delete", &["StatefulSet"], &["Pod"]),
    ] {
        let mut set = stateful_set(2, "OrderedReady");
        set["spec"]["persistentVolumeClaimRetentionPolicy"] = json!({"whenDeleted": deleted, "whenScaled": scaled});
        let mut course = settled(set);
        assert_eq!(owners(&course.model, "data-db-1"), kept, "{deleted} {scaled}");
        change(&mut course, |spec| spec["replicas"] = 1.into());
        course.step(1);
        assert_eq!(owners(&course.model, "data-db-1"), gone, "{deleted} {scaled}");
        assert_eq!(owners(&course.model, "data-db-0"), kept, "{deleted} {scaled}");
        course.settle();
        collect_garbage(&mut course);
        let stays = course.model.objects.contains_key(&(Kind::PersistentVolumeClaim, key("data-db-1")));
        assert_eq!(stays, scaled == "Retain");
    }
}

#[test]
fn a_pod_waits_for_the_claim_of_the_last_one_of_its_name_to_go() {
    let mut set = stateful_set(2, "OrderedReady");
    set["spec"]["persistentVolumeClaimRetentionPolicy"] = json!({"whenDeleted": "Retain", "whenScaled": "Delete"});
    let mut course = settled(set);
    change(&mut course, |spec| spec["replicas"] = 1.into());
    course.settle();
    change(&mut course, |spec| spec["replicas"] = 2.into());
    course.settle();
    assert_eq!(names(&course.model), ["db-0"]);
    collect_garbage(&mut course);
    course.settle();
    assert_rolled_out(&course.model);
}

#[test]
fn a_claim_of_another_controller_is_left_alone() {
    let mut set = stateful_set(1, "OrderedReady");
    set["spec"]["persistentVolumeClaimRetentionPolicy"] = json!({"whenDeleted": "Delete", "whenScaled": "Retain"});
    let mut course = Course::new(1, in_order);
    let other = json!({"apiVersion": "x/v1", "kind": "Other", "name": "o", "uid": "o", "controller": true});
    course
        .model
        .put(Kind::PersistentVolumeClaim, json!({"metadata": {"name": "data-db-0", "ownerReferences": [other]}}));
    course.model.put(Kind::StatefulSet, set);
    course.settle();
    assert_rolled_out(&course.model);
    assert_eq!(owners(&course.model, "data-db-0"), ["Other"]);
}
