//! Defaults and refusals of DaemonSets, with the paths and messages of Kubernetes.

use serde_json::{Value, json};

use super::generation::{ANNOTATION, check};
use super::{KIND, validate};
use crate::resource::strategy::Strategy;

/// A DaemonSet with its defaults, changed by a JSON merge patch.
fn filled(change: Value) -> Value {
    let mut value = json!({"metadata": {"name": "d", "namespace": "n"}, "spec": {
        "selector": {"matchLabels": {"app": "d"}},
        "template": {"metadata": {"labels": {"app": "d"}}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}}}});
    json_patch::merge(&mut value, &change);
    KIND.default(&mut value);
    value
}

fn complaints(change: Value) -> Vec<String> {
    validate::create(&filled(change)).iter().map(|e| format!("{}: {}", e.field, e.message)).collect()
}

fn generation(set: &Value) -> &Value {
    &set["metadata"]["annotations"][ANNOTATION]
}

#[test]
fn defaults_are_those_of_kubernetes_and_idempotent() {
    let mut set = filled(json!({"spec": {"minReadySeconds": 0}}));
    let strategy = json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}});
    assert_eq!((&set["spec"]["updateStrategy"], &set["spec"]["revisionHistoryLimit"]), (&strategy, &json!(10)));
    let once = set.clone();
    KIND.default(&mut set);
    assert_eq!(once, set);
    assert_eq!(validate::create(&once), []);
    let by_hand = filled(json!({"spec": {"updateStrategy": {"type": "OnDelete"}}}));
    assert_eq!(by_hand["spec"]["updateStrategy"], json!({"type": "OnDelete"}));
    KIND.prepare_create(&mut set);
    let nothing =
        json!({"currentNumberScheduled": 0, "desiredNumberScheduled": 0, "numberMisscheduled": 0, "numberReady": 0});
    assert_eq!(set["status"], nothing);
}

#[test]
fn changes_of_the_template_are_counted_and_nobody_else_counts() {
    let with = |said: &str| filled(json!({"metadata": {"annotations": {ANNOTATION: said}}}));
    for (said, counted) in [("7", "7"), ("-3", "1"), ("0", "1")] {
        let mut new = with(said);
        KIND.prepare_create(&mut new);
        assert_eq!(generation(&new), counted);
    }
    let mut old = filled(json!({}));
    KIND.prepare_create(&mut old);
    assert_eq!(generation(&old), "1");
    let mut same = with("9");
    KIND.prepare_update(&mut same, &old);
    assert_eq!(generation(&same), "1");
    let mut changed = filled(json!({"spec": {"template": {"metadata": {"labels": {"v": "2"}}}}}));
    KIND.prepare_update(&mut changed, &old);
    assert_eq!(generation(&changed), "2");
    let mut told = filled(json!({"status": {"numberReady": 3}, "spec": {"minReadySeconds": 5}}));
    KIND.prepare_status_update(&mut told, &old);
    assert_eq!((generation(&told), &told["status"]["numberReady"]), (&json!("1"), &json!(3)));
    assert_eq!(told["spec"], old["spec"]);
    let why = |said: &str| check(&with(said)).unwrap_err();
    assert_eq!(why("x"), "strconv.ParseInt: parsing \"x\": invalid syntax");
    assert_eq!(why("99999999999999999999"), "strconv.ParseInt: parsing \"99999999999999999999\": value out of range");
}

#[test]
fn what_cannot_work_is_refused() {
    let none: [&str; 0] = [];
    assert_eq!(complaints(json!({})), none);
    let labels =
        "spec.template.metadata.labels: Invalid value: {\"app\":\"d\"}: `selector` does not match template `labels`";
    assert_eq!(complaints(json!({"spec": {"selector": null}})), [labels]);
    assert_eq!(complaints(json!({"spec": {"selector": {"matchLabels": {"app": "x"}}}})), [labels]);
    assert_eq!(
        complaints(json!({"spec": {"selector": {"matchLabels": null}}})),
        ["spec.selector: Invalid value: {}: empty selector is invalid for daemonset"]
    );
    assert_eq!(
        complaints(json!({"spec": {"minReadySeconds": -1, "revisionHistoryLimit": -1,
            "template": {"spec": {"restartPolicy": "Never", "activeDeadlineSeconds": 1}}}})),
        [
            "spec.template.spec.restartPolicy: Unsupported value: \"Never\": supported values: \"Always\"",
            "spec.template.spec.activeDeadlineSeconds: Forbidden: activeDeadlineSeconds in DaemonSet is not Supported",
            "spec.minReadySeconds: Invalid value: -1: must be greater than or equal to 0",
            "spec.revisionHistoryLimit: Invalid value: -1: must be greater than or equal to 0",
        ]
    );
    let old = filled(json!({}));
    let new = filled(json!({"spec": {"selector": {"matchLabels": {"app": "d", "b": "c"}}}}));
    assert_eq!(validate::update(&new, &old)[0].field, "spec.selector");
}

#[test]
fn a_rolling_update_goes_one_way() {
    let of = |rolling: Value| complaints(json!({"spec": {"updateStrategy": {"rollingUpdate": rolling}}}));
    let none: [&str; 0] = [];
    let path = "spec.updateStrategy.rollingUpdate";
    assert_eq!(of(json!({"maxSurge": "10%", "maxUnavailable": 0})), none);
    assert_eq!(
        of(json!({"maxSurge": 1})),
        [format!("{path}.maxSurge: Invalid value: 1: may not be set when maxUnavailable is non-zero")]
    );
    assert_eq!(
        of(json!({"maxUnavailable": "0%"})),
        [format!("{path}.maxUnavailable: Required value: cannot be 0 when maxSurge is 0")]
    );
    assert_eq!(
        of(json!({"maxUnavailable": "101%"})),
        [format!("{path}.maxUnavailable: Invalid value: \"101%\": must not be greater than 100%")]
    );
    assert_eq!(
        complaints(json!({"spec": {"updateStrategy": {"type": "Other"}}})),
        ["spec.updateStrategy: Unsupported value: {\"Type\":\"Other\",\"RollingUpdate\":null}: supported values: \
             \"RollingUpdate\", \"OnDelete\""]
    );
}

#[test]
fn counts_of_a_status_are_counts() {
    let fields = |status: Value| -> Vec<String> {
        let old = json!({"status": {"collisionCount": 2}});
        validate::status(&json!({ "status": status }), &old).into_iter().map(|e| e.field).collect()
    };
    // More may be ready than desired: a node that no longer should run one still does.
    assert!(fields(json!({"desiredNumberScheduled": 1, "numberReady": 2, "collisionCount": 2})).is_empty());
    assert_eq!(
        fields(json!({"numberMisscheduled": -1, "updatedNumberScheduled": -1, "collisionCount": 1})),
        ["status.numberMisscheduled", "status.updatedNumberScheduled", "status.collisionCount"]
    );
}
