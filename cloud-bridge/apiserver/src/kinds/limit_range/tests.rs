//! Defaults and refusals of LimitRanges, with the paths and messages of Kubernetes.

use serde_json::{Value, json};

use super::{default, validate};

fn complaints(limit: Value) -> Vec<String> {
    let mut range = json!({"spec": {"limits": [limit]}});
    default(&mut range);
    let errors = validate::range(&range);
    errors.iter().map(|e| format!("{}: {}", e.field.replace("spec.limits[0].", ""), e.message)).collect()
}

#[test]
fn a_container_that_says_nothing_gets_the_most_or_the_least() {
    let mut range = json!({"spec": {"limits": [
        {"type": "Container", "max": {"cpu": "2000m"}, "min": {"memory": "1024Ki"}, "default": {"memory": "2Mi"}},
        {"type": "Pod", "max": {"cpu": "4"}, "default": {}},
    ]}});
    default(&mut range);
    let limits = &range["spec"]["limits"];
    assert_eq!(limits[0]["default"], json!({"cpu": "2", "memory": "2Mi"}));
    assert_eq!(limits[0]["defaultRequest"], json!({"cpu": "2", "memory": "2Mi"}));
    assert_eq!(limits[1], json!({"type": "Pod", "max": {"cpu": "4"}}));
    let once = range.clone();
    default(&mut range);
    assert_eq!(range, once);
    let mut least = json!({"spec": {"limits": [{"type": "Container", "min": {"cpu": "1"}}]}});
    default(&mut least);
    assert_eq!(least["spec"]["limits"][0]["defaultRequest"], json!({"cpu": "1"}));
}

#[test]
fn amounts_fit_together() {
    let none: [&str; 0] = [];
    assert_eq!(complaints(json!({"type": "Container", "max": {"cpu": "2"}, "min": {"cpu": "1"}})), none);
    assert_eq!(
        complaints(json!({"type": "Pod", "max": {"cpu": "1"}, "min": {"cpu": "2"}})),
        ["min[cpu]: Invalid value: \"2\": min value 2 is greater than max value 1"]
    );
    let request = json!({"type": "Container", "default": {"cpu": "1"}, "defaultRequest": {"cpu": "2"}});
    assert_eq!(
        complaints(request),
        ["defaultRequest[cpu]: Invalid value: \"2\": default request value 2 is greater than default limit value 1"]
    );
    assert_eq!(
        complaints(json!({"type": "Pod", "maxLimitRequestRatio": {"cpu": "500m"}})),
        ["maxLimitRequestRatio[cpu]: Invalid value: \"500m\": ratio 500m is less than 1"]
    );
    let ratio = json!({"type": "Pod", "min": {"cpu": "1"}, "max": {"cpu": "2"}, "maxLimitRequestRatio": {"cpu": "3"}});
    assert_eq!(
        complaints(ratio),
        ["maxLimitRequestRatio[cpu]: Invalid value: \"3\": ratio 3 is greater than max/min = 2.000000"]
    );
    let huge =
        json!({"type": "Container", "default": {"example.com/gpu": "2"}, "defaultRequest": {"example.com/gpu": "1"}});
    assert_eq!(
        complaints(huge),
        [
            "defaultRequest[example.com/gpu]: Invalid value: \"1\": default value 2 must equal to defaultRequest value 1 in \
             example.com/gpu"
        ]
    );
}

#[test]
fn types_and_resources_are_known() {
    assert_eq!(
        complaints(json!({"type": "Image"})),
        ["type: Invalid value: \"Image\": must be a standard limit type or fully qualified"]
    );
    let claim = complaints(json!({"type": "PersistentVolumeClaim", "max": {"cpu": "1"}}));
    assert!(claim[0].starts_with("limits: Required value: either minimum or maximum storage"), "{claim:?}");
    let pod = complaints(json!({"type": "Pod", "max": {"storage": "1"}, "default": {"cpu": "1"}}));
    assert_eq!(
        pod,
        [
            "max[storage]: Invalid value: \"storage\": must be a standard resource for containers",
            "default: Forbidden: may not be specified when `type` is 'Pod'",
        ]
    );
    let twice = validate::range(&json!({"spec": {"limits": [{"type": "Pod"}, {"type": "Pod"}]}}));
    assert_eq!(twice.iter().map(|e| e.field.as_str()).collect::<Vec<_>>(), ["spec.limits[1].type"]);
}
