//! Defaults and refusals of Jobs, with the paths and messages of Kubernetes.

use serde_json::{Value, json};

use super::{KIND, update, validate};
use crate::resource::strategy::Strategy;
use apimachinery::field::FieldError;

/// A Job with its defaults, changed by a JSON merge patch.
fn filled(change: Value) -> Value {
    let mut value = json!({"metadata": {"name": "j", "namespace": "n", "uid": "u"}, "spec": {
        "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i:1"}]}}}});
    json_patch::merge(&mut value, &change);
    KIND.default(&mut value);
    value
}

/// A Job in its stored form.
fn made(change: Value) -> Value {
    let mut job = filled(change);
    KIND.prepare_create(&mut job);
    job
}

fn told(errors: Vec<FieldError>) -> Vec<String> {
    errors.into_iter().map(|error| format!("{}: {}", error.field, error.message)).collect()
}

fn complaints(spec: Value) -> Vec<String> {
    told(validate::create(&made(json!({ "spec": spec }))))
}

#[test]
fn defaults_are_those_of_kubernetes_and_idempotent() {
    let mut job = made(json!({"status": {"active": 3}}));
    let spec = &job["spec"];
    let numbers = ["completions", "parallelism", "backoffLimit"].map(|field| spec[field].as_i64());
    assert_eq!(numbers, [Some(1), Some(1), Some(6)]);
    assert_eq!((&spec["completionMode"], &spec["suspend"]), (&json!("NonIndexed"), &json!(false)));
    assert_eq!((&spec["podReplacementPolicy"], &job["status"]), (&json!("TerminatingOrFailed"), &json!({})));
    let once = job.clone();
    KIND.default(&mut job);
    assert_eq!(once, job);
    assert_eq!(validate::create(&once), []);
    assert!(filled(json!({"spec": {"parallelism": 2}}))["spec"].get("completions").is_none());
    let each = filled(json!({"spec": {"backoffLimitPerIndex": 1, "podFailurePolicy": {"rules": [
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]}}}));
    assert_eq!(
        (&each["spec"]["backoffLimit"], &each["spec"]["podReplacementPolicy"]),
        (&json!(i32::MAX), &json!("Failed"))
    );
    assert_eq!(each["spec"]["podFailurePolicy"]["rules"][0]["onPodConditions"][0]["status"], "True");
}

#[test]
fn a_job_finds_its_own_pods() {
    let labels = json!({"batch.kubernetes.io/controller-uid": "u", "batch.kubernetes.io/job-name": "j",
        "controller-uid": "u", "job-name": "j"});
    let job = made(json!({}));
    assert_eq!(job["spec"]["selector"], json!({"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}}));
    assert_eq!((&job["spec"]["template"]["metadata"]["labels"], &job["metadata"]["labels"]), (&labels, &labels));
    let own = made(json!({"metadata": {"labels": {"a": "b"}}}));
    assert_eq!(own["metadata"]["labels"], json!({"a": "b"}));
    let foreign = json!({"template": {"metadata": {"labels": {"controller-uid": "x"}}}});
    let why = complaints(foreign);
    assert!(why[0].starts_with("spec.template.metadata.labels[controller-uid]: Invalid value: "), "{why:?}");
    assert!(why[0].ends_with("must be 'u'"), "{why:?}");
    let chosen = complaints(json!({"selector": {"matchLabels": {"a": "b"}}}));
    assert!(chosen[0].ends_with(": `selector` not auto-generated"), "{chosen:?}");
    let manual = json!({"manualSelector": true, "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}}});
    let job = made(json!({ "spec": manual }));
    assert_eq!((&job["metadata"]["labels"], validate::create(&job).len()), (&json!({"a": "b"}), 0));
    assert_eq!(
        complaints(json!({"manualSelector": true})),
        [
            "spec.selector: Required value",
            "spec.template.metadata.labels: Invalid value: null: `selector` does not match template `labels`"
        ]
    );
}

#[test]
fn numbers_have_limits() {
    assert_eq!(
        complaints(json!({"parallelism": -1, "completions": -1, "activeDeadlineSeconds": -1, "backoffLimit": -1,
            "ttlSecondsAfterFinished": -1})),
        ["parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished"]
            .map(|field| format!("spec.{field}: Invalid value: -1: must be greater than or equal to 0"))
    );
    assert_eq!(
        complaints(json!({"maxFailedIndexes": 1})),
        [
            "spec.backoffLimitPerIndex: Required value: when maxFailedIndexes is specified",
            "spec.maxFailedIndexes: Invalid value: 1: requires indexed completion mode",
        ]
    );
    assert_eq!(
        complaints(json!({"completionMode": "Indexed", "parallelism": 100_001})),
        [
            "spec.parallelism: Invalid value: 100001: must be less than or equal to 100000 when completion mode is \
             Indexed",
            "spec.completions: Required value: when completion mode is Indexed",
        ]
    );
    assert_eq!(
        complaints(
            json!({"completionMode": "Indexed", "completions": 2, "maxFailedIndexes": 3, "backoffLimitPerIndex": 0})
        ),
        ["spec.maxFailedIndexes: Invalid value: 3: must be less than or equal to completions"]
    );
    assert_eq!(
        complaints(json!({"completionMode": "Indexed", "completions": 100_001, "backoffLimitPerIndex": 0})),
        ["spec.maxFailedIndexes: Required value: must be specified when completions is above 100000"]
    );
    assert_eq!(
        complaints(json!({"completionMode": "Any"})),
        ["spec.completionMode: Unsupported value: \"Any\": supported values: \"NonIndexed\", \"Indexed\""]
    );
    let long =
        made(json!({"metadata": {"name": "a".repeat(62)}, "spec": {"completionMode": "Indexed", "completions": 10}}));
    let why = told(validate::create(&long));
    assert!(why[0].starts_with("metadata.name: ") && why[0].contains("will not able to create pod"), "{why:?}");
}

#[test]
fn who_manages_it_has_a_domain() {
    let of = |manager: &str| complaints(json!({ "managedBy": manager }));
    assert!(of("acme.io/foo").is_empty());
    assert_eq!(of(""), ["spec.managedBy: Required value"]);
    assert!(of("foo")[0].ends_with("must be a domain-prefixed path (such as \"acme.io/foo\")"));
    assert!(of("acme.io/a b")[0].starts_with("spec.managedBy: Invalid value: \"a b\": Invalid path (regex"));
    assert!(of("A/b")[0].starts_with("spec.managedBy: Invalid value: \"A\": a lowercase RFC 1123 subdomain"));
    assert!(of(&format!("a/{}", "b".repeat(62)))[0].contains("may not be more than 63 bytes"));
}

#[test]
fn its_pods_end() {
    let of = |policy: &str| complaints(json!({"template": {"spec": {"restartPolicy": policy}}}));
    assert!(of("OnFailure").is_empty());
    let path = "spec.template.spec.restartPolicy";
    assert_eq!(of("Always"), [format!("{path}: Required value: valid values: \"OnFailure\", \"Never\"")]);
    let other = of("Other");
    assert!(
        other.contains(&format!("{path}: Unsupported value: \"Other\": supported values: \"OnFailure\", \"Never\""))
    );
}

#[test]
fn failures_are_told_apart_by_rules() {
    let of = |rule: Value| complaints(json!({"podFailurePolicy": {"rules": [rule]}}));
    let path = "spec.podFailurePolicy.rules[0]";
    assert!(of(json!({"action": "FailJob", "onExitCodes": {"operator": "In", "values": [1, 42]}})).is_empty());
    assert_eq!(
        of(json!({"onPodConditions": [{"type": "a b", "status": "Maybe"}]}))[..1],
        [format!("{path}.action: Required value: valid values: [\"Count\" \"FailIndex\" \"FailJob\" \"Ignore\"]")]
    );
    assert_eq!(
        of(json!({"action": "FailIndex"})),
        [
            format!("{path}.action: Invalid value: \"FailIndex\": requires the backoffLimitPerIndex to be set"),
            format!("{path}: Invalid value: specifying one of OnExitCodes and OnPodConditions is required"),
        ]
    );
    let codes = format!("{path}.onExitCodes");
    assert_eq!(
        of(json!({"action": "Count", "onExitCodes": {"containerName": "x", "operator": "In", "values": [2, 0, 2]}})),
        [
            format!(
                "{codes}.containerName: Invalid value: \"x\": must be one of the container or initContainer names in the \
                 pod template"
            ),
            format!("{codes}.values[1]: Invalid value: 0: must not be 0 for the In operator"),
            format!("{codes}.values[2]: Duplicate value: 2"),
            format!("{codes}.values: Invalid value: [2,0,2]: must be ordered"),
        ]
    );
    let many = complaints(json!({"podFailurePolicy": {"rules": vec![json!({"action": "Ignore",
        "onExitCodes": {"operator": "NotIn", "values": [1]}}); 21]}, "podReplacementPolicy": "TerminatingOrFailed"}));
    assert_eq!(many[0], "spec.podFailurePolicy.rules: Too many: 21: must have at most 20 items");
    assert_eq!(
        many[1],
        "spec.podReplacementPolicy: Unsupported value: \"TerminatingOrFailed\": supported values: \"Failed\""
    );
    let again =
        complaints(json!({"podFailurePolicy": {"rules": []}, "template": {"spec": {"restartPolicy": "OnFailure"}}}));
    assert!(again[0].ends_with("only \"Never\" is supported when podFailurePolicy is specified"), "{again:?}");
}

#[test]
fn success_is_told_by_indexes() {
    let of = |rules: Value| {
        complaints(json!({"completionMode": "Indexed", "completions": 5, "successPolicy": {"rules": rules}}))
    };
    let path = "spec.successPolicy.rules";
    assert!(of(json!([{"succeededIndexes": "0,2-3", "succeededCount": 3}])).is_empty());
    assert_eq!(
        of(json!([])),
        [format!("{path}: Required value: at least one rules must be specified when the successPolicy is specified")]
    );
    assert_eq!(
        of(
            json!([{}, {"succeededCount": 6}, {"succeededIndexes": "5"}, {"succeededIndexes": "0", "succeededCount": 2}])
        ),
        [
            format!("{path}[0]: Required value: at least one of succeededCount or succeededIndexes must be specified"),
            format!(
                "{path}[1].succeededCount: Invalid value: 6: must be less than or equal to 5 (the number of specified \
                 completions)"
            ),
            format!(
                "{path}[2].succeededIndexes: Invalid value: \"5\": error parsing succeededIndexes: too large index: \"5\""
            ),
            format!(
                "{path}[3].succeededCount: Invalid value: 2: must be less than or equal to 1 (the number of indexes in the \
                 specified succeededIndexes field)"
            ),
        ]
    );
    let plain = complaints(json!({"successPolicy": {"rules": []}}));
    assert!(plain[0].ends_with("requires indexed completion mode"), "{plain:?}");
}

fn refused(old: &Value, change: Value) -> Vec<String> {
    let mut new = old.clone();
    json_patch::merge(&mut new, &change);
    KIND.default(&mut new);
    update::update(&new, old).into_iter().map(|error| error.field).collect()
}

#[test]
fn most_of_a_job_stays() {
    let old = made(json!({}));
    let none: [&str; 0] = [];
    let fine = json!({"spec": {"parallelism": 3, "suspend": true, "backoffLimit": 1, "activeDeadlineSeconds": 9,
        "ttlSecondsAfterFinished": 1}});
    assert_eq!(refused(&old, fine), none);
    assert_eq!(refused(&old, json!({"spec": {"completions": 2}})), ["spec.completions"]);
    let image = json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "i:2"}]}}}});
    assert_eq!(refused(&old, image), ["spec.template"]);
    assert_eq!(refused(&old, json!({"spec": {"managedBy": "a.io/b"}})), ["spec.managedBy"]);
    let indexed = made(json!({"spec": {"completionMode": "Indexed", "completions": 2, "parallelism": 2}}));
    assert_eq!(refused(&indexed, json!({"spec": {"completions": 3, "parallelism": 3}})), none);
    assert_eq!(refused(&indexed, json!({"spec": {"completions": 3}})), ["spec.completions"]);
    // Jobs of older versions have only labels without a domain.
    let mut older = made(json!({"spec": {"selector": {"matchLabels": {"controller-uid": "u"}}}}));
    for label in ["controller-uid", "job-name"] {
        let labels = older.pointer_mut("/spec/template/metadata/labels").unwrap().as_object_mut().unwrap();
        labels.remove(&format!("batch.kubernetes.io/{label}"));
    }
    json_patch::merge(
        &mut older,
        &json!({"spec": {"selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": null}}}}),
    );
    assert_eq!(refused(&older, json!({"spec": {"parallelism": 2}})), none);
}

#[test]
fn a_job_that_waits_may_get_other_places_and_resources() {
    let none: [&str; 0] = [];
    let directives = json!({"spec": {"template": {"metadata": {"annotations": {"a": "b"}, "labels": {"v": "2"}}, "spec": {
        "nodeSelector": {"disk": "ssd"}, "tolerations": [{"key": "a", "operator": "Exists"}],
        "schedulingGates": [{"name": "g"}],
        "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}}}}});
    let suspended = made(json!({"spec": {"suspend": true}}));
    assert_eq!(refused(&suspended, directives.clone()), none);
    let mut placed = suspended.clone();
    json_patch::merge(&mut placed, &directives);
    assert_eq!(refused(&placed, json!({"spec": {"template": {"spec": {"affinity": null}}}})), none);
    let mut container = suspended["spec"]["template"]["spec"]["containers"][0].clone();
    json_patch::merge(&mut container, &json!({"resources": {"requests": {"cpu": "2"}}}));
    let resources = json!({"spec": {"template": {"spec": {"containers": [container]}}}});
    assert_eq!(refused(&suspended, resources.clone()), none);
    let image = json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "i:2"}]}}}});
    assert_eq!(refused(&suspended, image), ["spec.template.spec"]);
    let state = |status: Value| {
        let mut job = suspended.clone();
        json_patch::merge(&mut job, &json!({ "status": status }));
        job
    };
    let start = "2026-01-01T00:00:00Z";
    let halted = json!([{"type": "Suspended", "status": "True"}]);
    assert_eq!(refused(&state(json!({"startTime": start})), resources.clone()), ["spec.template"]);
    assert_eq!(refused(&state(json!({"startTime": start, "conditions": halted})), resources.clone()), none);
    assert_eq!(refused(&state(json!({"active": 1})), resources), ["spec.template"]);
}

#[test]
fn a_row_tells_how_far_it_is() {
    let cells = |change: Value| {
        let mut job = made(json!({}));
        json_patch::merge(&mut job, &change);
        let row = KIND.row(&job, "2026-01-01T01:00:00Z".parse().unwrap());
        [row[1].clone(), row[2].clone(), row[3].clone()].map(|cell| cell.as_str().unwrap_or_default().to_owned())
    };
    assert_eq!(cells(json!({})), ["Running", "0/1", ""]);
    let (start, end) = ("2026-01-01T00:58:00Z", "2026-01-01T00:59:00Z");
    let ended = json!({"startTime": start, "completionTime": end, "succeeded": 1,
        "conditions": [{"type": "Complete", "status": "True"}]});
    assert_eq!(cells(json!({ "status": ended })), ["Complete", "1/1", "60s"]);
    let halted = json!({"startTime": start, "conditions": [{"type": "Suspended", "status": "True"}]});
    assert_eq!(
        cells(json!({"status": halted, "spec": {"completions": null, "parallelism": 3}})),
        ["Suspended", "0/1 of 3", "2m"]
    );
}
