//! Errors of values, and the work to find them.

use serde_json::json;

use super::*;

fn texts(value: &Value, schema: &Value) -> Vec<String> {
    let mut errors = Vec::new();
    validate(value, None, schema, "", Place::Aside, &mut errors);
    errors.iter().map(|e| format!("{}: {}", e.field, e.message)).collect()
}

#[test]
fn messages() {
    let schema = json!({"type": "object", "required": ["spec"], "properties": {"spec": {"type": "object", "required": ["image"], "properties": {
        "image": {"type": "string", "minLength": 1, "pattern": "^[a-z]+$"},
        "n": {"type": "integer", "minimum": 1, "maximum": 5},
        "mode": {"type": "string", "enum": ["a", "b"]},
        "p": {"x-kubernetes-int-or-string": true},
        "l": {"type": "array", "maxItems": 1, "items": {"type": "string"}},
    }}}});
    assert_eq!(texts(&json!({}), &schema), ["spec: Required value"]);
    assert_eq!(
        texts(&json!({"spec": {"image": "A1"}}), &schema),
        ["spec.image: Invalid value: \"A1\": spec.image in body should match '^[a-z]+$'"]
    );
    assert_eq!(
        texts(&json!({"spec": {"image": "a", "n": "x"}}), &schema),
        ["spec.n: Invalid value: \"string\": spec.n in body must be of type integer: \"string\""]
    );
    assert_eq!(
        texts(&json!({"spec": {"image": "a", "n": 9}}), &schema),
        ["spec.n: Invalid value: 9: spec.n in body should be less than or equal to 5"]
    );
    assert_eq!(
        texts(&json!({"spec": {"image": "a", "mode": "c"}}), &schema),
        ["spec.mode: Unsupported value: \"c\": supported values: \"a\", \"b\""]
    );
    assert_eq!(
        texts(&json!({"spec": {"image": "a", "l": ["x", "y"]}}), &schema),
        ["spec.l: Too many: 2: must have at most 1 items"]
    );
    assert!(texts(&json!({"spec": {"image": "a", "p": "50%", "n": 2}}), &schema).is_empty());
}

#[test]
fn what_has_not_changed_is_not_judged() {
    let short = json!({"type": "string", "maxLength": 2});
    let item = json!({"type": "object", "properties": {"k": {"type": "string"}, "v": short}});
    let schema = json!({"type": "object", "required": ["new"], "properties": {
        "spec": {"type": "object", "required": ["x"], "properties": {"a": short, "b": short}},
        "map": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": item},
        "list": {"type": "array", "items": short},
    }});
    let fields = |old: &Value, new: Value| {
        let mut errors = Vec::new();
        validate(&new, Some(old), &schema, "", Place::Aside, &mut errors);
        errors.into_iter().map(|error| error.field).collect::<Vec<_>>()
    };
    let old = json!({"spec": {"a": "long"}, "map": [{"k": "1", "v": "long"}], "list": ["long"]});
    assert_eq!(fields(&old, old.clone()), [""; 0]);
    let mut new = old.clone();
    new["metadata"] = json!({"labels": {"a": "b"}});
    assert_eq!(fields(&old, new.clone()), ["new"], "the object as a whole has changed");
    new["spec"]["b"] = "ok".into();
    assert_eq!(fields(&old, new.clone()), ["new", "spec.x"], "spec.a has not");
    new =
        json!({"spec": old["spec"], "map": [{"k": "2", "v": "long"}, {"k": "1", "v": "long"}], "list": ["long", "x"]});
    let wrong = fields(&old, new);
    assert_eq!(wrong, ["new", "list[0]", "map[0].v"], "items of maps are found by their keys");
}

#[test]
fn multiples_of_fractions_are_multiples() {
    for (value, factor, fits) in [
        (json!(0.3), json!(0.1), true),
        (json!(21.1), json!(0.1), true),
        (json!(5.1), json!(0.001), true),
        (json!(3), json!(0.01), true),
        (json!(0), json!(0.1), true),
        (json!(4.5), json!(1.5), true),
        (json!(9_007_199_254_740_993_i64), json!(2), false),
        (json!(0.35), json!(0.1), false),
        (json!(0.04), json!(0.1), false),
        (json!(7), json!(2), false),
    ] {
        let told = texts(&value, &json!({"type": "number", "multipleOf": factor}));
        assert_eq!(told.is_empty(), fits, "{value} of {factor}: {told:?}");
    }
}

#[test]
fn a_text_that_is_too_long_meets_no_pattern() {
    let schema = json!({"type": "string", "maxLength": 10, "pattern": "^(([a-z0-9]{1,60}-?){1,60})$"});
    let started = std::time::Instant::now();
    assert_eq!(texts(&json!("a".repeat(3_000_000)), &schema), [": Too long: may not be more than 10 bytes"]);
    assert!(started.elapsed().as_millis() < 2000, "{:?}", started.elapsed());
}

#[test]
fn work_for_patterns_and_alternatives_is_bounded() {
    let pattern = json!({"type": "string", "pattern": "^(([a-z0-9]{1,60}-?){1,60})$"});
    let branch = json!({"type": "array", "items": {"type": "integer"}, "maxItems": 1});
    let many = json!({"type": "array", "anyOf": vec![branch; 100]});
    let started = std::time::Instant::now();
    let told = texts(&json!("a".repeat(3_000_000)), &pattern);
    assert!(told.last().is_some_and(|text| text.contains("too large to be held against")), "{told:?}");
    let told = texts(&json!(vec![1; 20_000]), &many);
    assert!(told.last().is_some_and(|text| text.contains("too large to be held against")), "{told:?}");
    assert!(started.elapsed().as_secs() < 20, "{:?}", started.elapsed());
}

#[test]
fn less_work_is_done_on_the_thread() {
    let all = json!({"type": "array", "items": {"allOf": vec![json!({"maxLength": 9}); 100]}});
    let errors = |place| {
        let mut errors = Vec::new();
        validate(&json!(vec!["x"; 1_000]), None, &all, "", place, &mut errors);
        errors.len()
    };
    assert_eq!((errors(Place::Aside), errors(Place::Thread)), (0, 1));
}

#[test]
fn work_for_combined_schemas_and_missing_fields_is_bounded() {
    let too_large = |value: &Value, schema: &Value| {
        let told = texts(value, schema);
        (told.len(), told.last().is_some_and(|text| text.contains("too large to be held against")))
    };
    let all = json!({"type": "array", "items": {"allOf": vec![json!({"maxLength": 9}); 100]}});
    assert_eq!(too_large(&json!(vec!["x"; 1_000]), &all), (0, false));
    assert_eq!(too_large(&json!(vec!["x"; 20_000]), &all), (1, true));
    let names: Vec<String> = (0..1_000).map(|at| format!("n{at}")).collect();
    let required = json!({"type": "array", "items": {"required": names}});
    let (told, is_cut) = too_large(&json!(vec![json!({}); 1_000]), &required);
    assert!(is_cut && (ERRORS_MAX..ERRORS_MAX + 2_000).contains(&told), "{told}");
    let any = json!({"type": "array", "items": {"anyOf": [{"required": names}, {"type": "object"}]}});
    assert_eq!(too_large(&json!(vec![json!({}); 100]), &any), (0, false));
    assert_eq!(too_large(&json!(vec![json!({}); 1_000]), &any), (1, true));
}

#[test]
fn many_values_are_judged_by_what_was_made_of_the_schema_once() {
    let words: Vec<String> = (0..5000).map(|at| format!("word-{at}")).collect();
    let schema =
        json!({"type": "array", "items": {"type": "string", "enum": words, "pattern": "^([a-z]{1,60}-?){1,9}[0-9]*$"}});
    // CPU time of this thread in nanoseconds (proc(5)), independent of other programs of the host.
    let spent = || -> u64 {
        let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
        stat.split(' ').next().unwrap().parse().unwrap()
    };
    let before = spent();
    let good: Vec<&String> = words.iter().rev().cycle().take(5000).collect();
    assert_eq!(texts(&json!(good), &schema), [""; 0]);
    let bad = texts(&json!(vec!["Ä"; 5000]), &schema);
    assert_eq!(bad.len(), 10_000);
    assert!(bad[1].ends_with("in body should match '^([a-z]{1,60}-?){1,9}[0-9]*$'"), "{}", bad[1]);
    assert!(spent() - before < 5_000_000_000, "{} ns", spent() - before);
}
