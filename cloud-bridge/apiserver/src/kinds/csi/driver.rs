//! CSIDrivers: what the cluster has to do for the volumes of a driver.

use std::collections::HashSet;

use jiff::Timestamp;
use k8s_openapi::api::storage::v1;
use serde_json::{Value, json};

use super::rules::RULES;
use crate::codec::decode;
use crate::kinds::columns::{AGE, NAME, Table, age, name, or_none};
use crate::kinds::kind::{Kind, PLAIN, spec_changed};
use crate::patch::merge_keys::{META, Type, object, set};
use apimachinery::field::{Errors, FieldError, immutable};
use apimachinery::json::{flag, integer, items, present, set_default, text};

/// Minimum time between two updates of a node's volume limit, in seconds.
const UPDATE_PERIOD_MIN: i64 = 10;
/// Lifetimes of a token, in seconds.
const TOKEN_MIN: i64 = 600;
const TOKEN_MAX: i64 = 1 << 32;

pub(crate) static KIND: Kind = Kind {
    group: "storage.k8s.io",
    kind: "CSIDriver",
    plural: "csidrivers",
    singular: "csidriver",
    check: Some(decode::check::<v1::CSIDriver>),
    rules: RULES,
    generation: Some(spec_changed),
    default,
    create: validate,
    update,
    warnings,
    table: &Table {
        columns: [
            NAME,
            ("AttachRequired", "boolean", 0, "Whether volumes are attached to a node before they are mounted."),
            ("PodInfoOnMount", "boolean", 0, "Whether the driver gets names of the pod with each mount."),
            ("StorageCapacity", "boolean", 0, "Whether the scheduler considers the driver's CSIStorageCapacities."),
            ("TokenRequests", "string", 0, "Audiences of the tokens that the driver gets with each mount."),
            ("RequiresRepublish", "boolean", 0, "Whether mounts are repeated while the pod runs."),
            ("Modes", "string", 0, "Kinds of volumes: Persistent, Ephemeral."),
            AGE,
        ],
        row,
    },
    keys: &KEYS,
    ..PLAIN
};

static KEYS: Type = Type { fields: &[META, object("spec", &SPEC)] };
static SPEC: Type = Type { fields: &[set("volumeLifecycleModes")] };

/// K8s pkg/apis/storage/v1/defaults.go.
fn default(driver: &mut Value) {
    let Some(spec) = driver.get_mut("spec").filter(|spec| spec.is_object()) else { return };
    set_default(spec, "attachRequired", true);
    for field in ["podInfoOnMount", "storageCapacity", "requiresRepublish", "seLinuxMount"] {
        set_default(spec, field, false);
    }
    set_default(spec, "fsGroupPolicy", "ReadWriteOnceWithFSType");
    set_default(spec, "volumeLifecycleModes", json!(["Persistent"]));
    // Behind a gate that is off in Kubernetes 1.36 (VolumeLimitScaling).
    if let Some(spec) = spec.as_object_mut() {
        spec.remove("preventPodSchedulingIfMissing");
    }
}

/// K8s pkg/apis/storage/validation, `validateCSIDriverSpec`.
fn validate(driver: &Value) -> Vec<FieldError> {
    const POLICIES: &[&str] = &["File", "None", "ReadWriteOnceWithFSType"];
    const MODES: &[&str] = &["Persistent", "Ephemeral"];
    let mut errors = Errors::new();
    let spec = &driver["spec"];
    if let Some(policy) = present(spec, "fsGroupPolicy")
        && !policy.as_str().is_some_and(|policy| POLICIES.contains(&policy))
    {
        errors.push(FieldError::not_supported("spec.fsGroupPolicy", policy, POLICIES));
    }
    tokens(&mut errors, items(spec, "tokenRequests"));
    for mode in items(spec, "volumeLifecycleModes") {
        if !mode.as_str().is_some_and(|mode| MODES.contains(&mode)) {
            errors.push(FieldError::not_supported("spec.volumeLifecycleModes", mode, MODES));
        }
    }
    if integer(spec, "nodeAllocatableUpdatePeriodSeconds").is_some_and(|period| period < UPDATE_PERIOD_MIN) {
        let path = "spec.nodeAllocatableUpdatePeriodSeconds";
        let value = &spec["nodeAllocatableUpdatePeriodSeconds"];
        errors.push(FieldError::invalid(path, value, "must be greater than or equal to 10 seconds"));
    }
    if let Some(value) = present(spec, "serviceAccountTokenInSecrets")
        && items(spec, "tokenRequests").is_empty()
    {
        let detail = "serviceAccountTokenInSecrets is set but no tokenRequests are specified";
        errors.push(FieldError::invalid("spec.serviceAccountTokenInSecrets", value, detail));
    }
    errors
}

fn tokens(errors: &mut Errors, requests: &[Value]) {
    let mut audiences = HashSet::new();
    for (i, request) in requests.iter().enumerate() {
        let (path, audience) = (format!("spec.tokenRequests[{i}]"), text(request, "audience"));
        if !audiences.insert(audience) {
            errors.push(FieldError::duplicate(format!("{path}.audience"), &audience.into()));
            continue;
        }
        let Some(seconds) = integer(request, "expirationSeconds") else { continue };
        let detail = match seconds {
            ..TOKEN_MIN => "may not specify a duration less than 10 minutes",
            TOKEN_MIN..=TOKEN_MAX => continue,
            _ => "may not specify a duration larger than 2^32 seconds",
        };
        errors.push(FieldError::invalid(format!("{path}.expirationSeconds"), &seconds.into(), detail));
    }
}

fn update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = validate(new);
    let (new, old) = (&new["spec"], &old["spec"]);
    immutable(&mut errors, "spec.attachedRequired", &new["attachRequired"], &old["attachRequired"]);
    let modes = "volumeLifecycleModes";
    immutable(&mut errors, "spec.volumeLifecycleModes", &new[modes], &old[modes]);
    errors
}

fn warnings(driver: &Value) -> Vec<String> {
    let spec = &driver["spec"];
    if items(spec, "tokenRequests").is_empty() || present(spec, "serviceAccountTokenInSecrets").is_some() {
        return Vec::new();
    }
    let told = "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent \
                possible logging of tokens in volume attributes";
    vec![told.to_owned()]
}

fn row(driver: &Value, now: Timestamp) -> [Value; 8] {
    let spec = &driver["spec"];
    let joined = |texts: Vec<&str>| texts.join(",");
    let audiences = match items(spec, "tokenRequests") {
        [] => "<unset>".to_owned(),
        requests => joined(requests.iter().map(|one| text(one, "audience")).collect()),
    };
    let modes = joined(items(spec, "volumeLifecycleModes").iter().filter_map(Value::as_str).collect());
    [
        name(driver),
        flag(spec, "attachRequired").into(),
        flag(spec, "podInfoOnMount").into(),
        flag(spec, "storageCapacity").into(),
        audiences.into(),
        flag(spec, "requiresRepublish").into(),
        or_none(&modes),
        age(driver, now),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(spec: Value) -> Value {
        let mut driver = json!({"metadata": {"name": "d"}, "spec": spec});
        default(&mut driver);
        driver
    }

    fn fields(errors: Vec<FieldError>) -> Vec<String> {
        errors.into_iter().map(|error| error.field).collect()
    }

    #[test]
    fn empty_driver_gets_the_defaults_of_kubernetes() {
        let driver = with(json!({"preventPodSchedulingIfMissing": true}));
        let expected = json!({"attachRequired": true, "podInfoOnMount": false, "storageCapacity": false,
            "requiresRepublish": false, "seLinuxMount": false, "fsGroupPolicy": "ReadWriteOnceWithFSType",
            "volumeLifecycleModes": ["Persistent"]});
        assert_eq!(driver["spec"], expected);
        assert_eq!(validate(&driver), []);
        let mut again = driver.clone();
        default(&mut again);
        assert_eq!(again, driver);
    }

    #[test]
    fn wrong_driver_names_each_field() {
        let wrong = with(json!({"fsGroupPolicy": "Some", "volumeLifecycleModes": ["Persistent", "Once"],
            "nodeAllocatableUpdatePeriodSeconds": 9, "serviceAccountTokenInSecrets": true}));
        let expected = [
            "spec.fsGroupPolicy",
            "spec.volumeLifecycleModes",
            "spec.nodeAllocatableUpdatePeriodSeconds",
            "spec.serviceAccountTokenInSecrets",
        ];
        assert_eq!(fields(validate(&wrong)), expected);
        let tokens = json!([{"audience": ""}, {"audience": "a", "expirationSeconds": 599}, {"audience": ""},
            {"audience": "b", "expirationSeconds": 4_294_967_297_i64}, {"audience": "c", "expirationSeconds": 600}]);
        let expected = [
            "spec.tokenRequests[1].expirationSeconds",
            "spec.tokenRequests[2].audience",
            "spec.tokenRequests[3].expirationSeconds",
        ];
        assert_eq!(fields(validate(&with(json!({"tokenRequests": tokens})))), expected);
    }

    #[test]
    fn attach_and_modes_of_a_driver_stay() {
        let (old, free) = (with(json!({})), with(json!({"podInfoOnMount": true, "fsGroupPolicy": "File"})));
        assert_eq!(update(&free, &old), []);
        let new = with(json!({"attachRequired": false, "volumeLifecycleModes": ["Ephemeral"]}));
        assert_eq!(fields(update(&new, &old)), ["spec.attachedRequired", "spec.volumeLifecycleModes"]);
    }

    #[test]
    fn driver_that_gets_tokens_in_attributes_is_warned_of() {
        let of = |spec: Value| warnings(&with(spec)).len();
        let tokens = json!([{"audience": "a"}]);
        assert_eq!((of(json!({})), of(json!({"tokenRequests": tokens}))), (0, 1));
        assert_eq!(of(json!({"tokenRequests": tokens, "serviceAccountTokenInSecrets": false})), 0);
    }

    #[test]
    fn row_shows_audiences_and_modes() {
        let plain = row(&with(json!({})), Timestamp::UNIX_EPOCH);
        assert_eq!((&plain[1], &plain[4], &plain[6]), (&json!(true), &json!("<unset>"), &json!("Persistent")));
        let tokens = json!([{"audience": "a"}, {"audience": "b"}]);
        let both = with(json!({"tokenRequests": tokens, "volumeLifecycleModes": ["Persistent", "Ephemeral"]}));
        let shown = row(&both, Timestamp::UNIX_EPOCH);
        assert_eq!((&shown[4], &shown[6]), (&json!("a,b"), &json!("Persistent,Ephemeral")));
    }
}
