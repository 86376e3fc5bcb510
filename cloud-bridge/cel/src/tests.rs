//! Rules as definitions and objects meet them.

use serde_json::{Value, json};

use crate::helper::Helper;
use crate::question::{Answer, Question};

/// A schema whose `spec` has these properties and rules.
fn schema(properties: &Value, rules: &Value) -> Value {
    json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": properties, "x-kubernetes-validations": rules},
    }})
}

fn texts(answer: Answer) -> (Vec<String>, Vec<String>) {
    match answer {
        Answer::Judged { findings, warnings } => (findings.iter().map(ToString::to_string).collect(), warnings),
        other => panic!("{other:?}"),
    }
}

fn compiled(schema: &Value) -> Vec<String> {
    let schemas = vec![("openAPIV3Schema".to_owned(), schema.clone())];
    texts(Helper::new(None).answer(Question::Compile { schemas })).0
}

fn judged(schema: &Value, new: &Value, old: Option<&Value>) -> (Vec<String>, Vec<String>) {
    let mut helper = Helper::new(None);
    let name = "s".to_owned();
    helper.answer(Question::Learn { name: name.clone(), schema: schema.clone() });
    texts(helper.answer(Question::Validate { name, new: new.clone(), old: old.cloned() }))
}

fn found(schema: &Value, spec: &Value, old: Option<&Value>) -> Vec<String> {
    let object = |spec: &Value| json!({"apiVersion": "x/v1", "kind": "X", "metadata": {"name": "a"}, "spec": spec});
    judged(schema, &object(spec), old.map(object).as_ref()).0
}

/// Whether a rule on the spec compiles, and its result for the spec.
#[track_caller]
fn holds(properties: &Value, rule: &str, spec: &Value) -> bool {
    let schema = schema(properties, &json!([{"rule": rule, "message": "broken"}]));
    assert_eq!(compiled(&schema), Vec::<String>::new(), "{rule}");
    match found(&schema, spec, None).as_slice() {
        [] => true,
        [one] if one.ends_with(": broken") => false,
        other => panic!("{rule}: {other:?}"),
    }
}

#[test]
fn a_broken_rule_is_told_in_the_words_of_the_api_server() {
    let size = json!({"size": {"type": "integer"}});
    let told = |rule: Value, spec: Value| found(&schema(&size, &json!([rule])), &spec, None);
    assert_eq!(told(json!({"rule": "self.size > 1"}), json!({"size": 2})), Vec::<String>::new());
    assert_eq!(
        told(json!({"rule": "self.size > 1"}), json!({"size": 1})),
        ["spec: Invalid value: failed rule: self.size > 1"]
    );
    let rule =
        json!({"rule": "self.size > 1", "message": "too small", "reason": "FieldValueForbidden", "fieldPath": ".size"});
    assert_eq!(told(rule, json!({"size": 1})), ["spec.size: Forbidden: too small"]);
    let rule = json!({"rule": "self.size > 1", "message": "m", "messageExpression": "'is ' + string(self.size)"});
    assert_eq!(told(rule, json!({"size": 1})), ["spec: Invalid value: is 1"]);
    let rule = json!({"rule": "self.size > 1", "message": "m", "messageExpression": "'line\\n' + string(self.size)"});
    assert_eq!(told(rule, json!({"size": 1})), ["spec: Invalid value: m"], "a message of two lines is none");
    let rule = json!({"rule": "self.size > 1", "message": "m"});
    assert_eq!(told(rule, json!({})), ["spec: Invalid value: \"object\": no such key: size evaluating rule: m"],);
    let whole = json!({"type": "object", "x-kubernetes-validations": [{"rule": "self.metadata.name == 'b' && self.kind == 'X'"}],
        "properties": {"spec": {"type": "object", "properties": {"n": {"type": "string",
            "x-kubernetes-validations": [{"rule": "self.startsWith('a')", "reason": "FieldValueDuplicate"}]}}}}});
    assert_eq!(compiled(&whole), Vec::<String>::new());
    assert_eq!(
        found(&whole, &json!({"n": "b"}), None),
        [
            "<nil>: Invalid value: failed rule: self.metadata.name == 'b' && self.kind == 'X'",
            "spec.n: Duplicate value: \"b\""
        ],
    );
}

#[test]
fn rules_that_do_not_compile_are_refused_with_their_place() {
    let properties = json!({"size": {"type": "integer"}, "text": {"type": "string"}, "free": {"x-kubernetes-preserve-unknown-fields": true}});
    let told = |rule: Value| compiled(&schema(&properties, &json!([rule])));
    let rule = |text: &str| json!({ "rule": text });
    assert_eq!(
        told(rule("self.sise > 1")),
        [
            "openAPIV3Schema.properties[spec].x-kubernetes-validations[0].rule: Invalid value: {\"Rule\":\"self.sise \\u003e 1\",\"Message\":\"\",\"MessageExpression\":\"\",\"Reason\":null,\"FieldPath\":\"\",\"OptionalOldSelf\":null}: compilation failed: ERROR: <input>:1:5: undefined field 'sise'\n | self.sise > 1\n | ....^"
        ],
    );
    // The positions are those of a real API server.
    for (wrong, why) in [
        ("self.text.frobnicate()", "<input>:1:21: undeclared reference to 'frobnicate'"),
        ("sortBy(self.text)", "<input>:1:7: undeclared reference to 'sortBy'"),
        ("self.size + 'a' == 'b'", "<input>:1:11: found no matching overload for '_+_'"),
        ("self.size.startsWith('a')", "<input>:1:21: found no matching overload for 'startsWith'"),
        ("self.size.foo == 1", "<input>:1:10: type 'int' does not support field selection"),
        ("has(self.nope)", "<input>:1:4: undefined field 'nope'"),
        ("self.?nope.hasValue()", "<input>:1:5: undefined field 'nope'"),
        ("self.text['a'] == 1", "<input>:1:10: found no matching overload for '_[_]'"),
        ("self.size ? true : false", "<input>:1:11: found no matching overload for '_?_:_'"),
        ("!self.size", "<input>:1:1: found no matching overload for '!_'"),
        ("self.size == 'a'", "found no matching overload for '_==_' applied to '(int, string)'"),
        ("self.size.startsWith('a')", "found no matching overload for 'startsWith' applied to 'int.(string)'"),
        ("self.text.frobnicate()", "undeclared reference to 'frobnicate' (in container '')"),
        ("cel.bind(x, 1, x > 0)", "undeclared reference to 'cel'"),
        ("other.size > 1", "undeclared reference to 'other' (in container '')"),
        ("self.free == 1", "undefined field 'free'"),
        ("self.size", "cel expression must evaluate to a bool"),
        ("self.size >", "compilation failed: ERROR: <input>:1:12: Syntax error: "),
        ("self.size > 1 &&& true", "Syntax error"),
        ("[1, 2].all(i, v, v > 0)", "undeclared reference to 'all'"),
        ("authorizer.group('a') == 1", "undeclared reference to 'authorizer'"),
        ("self.text.matches(1)", "found no matching overload for 'matches' applied to 'string.(int)'"),
        ("oldSelf.sise == 1", "undefined field 'sise'"),
        ("", "rule is not specified"),
    ] {
        let found = told(rule(wrong));
        assert!(found.len() == 1 && found[0].contains(why), "{wrong}: {found:?}");
    }
    for (wrong, field, why) in [
        (json!({"rule": "true", "message": " "}), "message", "message must be non-empty if specified"),
        (json!({"rule": "true", "message": "a\nb"}), "message", "message must not contain line breaks"),
        (json!({"rule": "true\n&& true"}), "message", "message must be specified if rule contains line breaks"),
        (
            json!({"rule": "true", "reason": "Because"}),
            "reason",
            "Unsupported value: \"Because\": supported values: \"FieldValueDuplicate\", \"FieldValueForbidden\", \"FieldValueInvalid\", \"FieldValueRequired\"",
        ),
        (json!({"rule": "true", "fieldPath": ".nothing"}), "fieldPath", "fieldPath must be a valid path"),
        (
            json!({"rule": "true", "messageExpression": "1"}),
            "messageExpression",
            "messageExpression must evaluate to a string",
        ),
        (
            json!({"rule": "true", "messageExpression": "self.sise"}),
            "messageExpression",
            "messageExpression compilation failed: ERROR: ",
        ),
        (
            json!({"rule": "true", "optionalOldSelf": true}),
            "optionalOldSelf",
            "Invalid value: true: may not be set if oldSelf is not used in rule",
        ),
    ] {
        let found = told(wrong);
        assert!(
            found.len() == 1 && found[0].contains(&format!("[0].{field}: ")) && found[0].contains(why),
            "{found:?}"
        );
    }
}

#[test]
fn old_values_count_only_where_they_are_the_same_ones() {
    let items = |extra: Value| {
        let mut list = json!({"type": "array", "items": {"type": "object",
            "properties": {"name": {"type": "string"}, "n": {"type": "integer", "x-kubernetes-validations": [{"rule": "self >= oldSelf"}]}}}});
        list.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"list": list}}}})
    };
    assert_eq!(
        compiled(&items(json!({}))),
        [
            "openAPIV3Schema.properties[spec].properties[list].items.properties[n].x-kubernetes-validations[0].rule: Invalid value: \"self >= oldSelf\": oldSelf cannot be used on the uncorrelatable portion of the schema within openAPIV3Schema.properties[spec].properties[list].items"
        ],
    );
    let keyed = items(json!({"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}));
    assert_eq!(compiled(&keyed), Vec::<String>::new());
    let spec = |a: i64, b: i64| json!({"list": [{"name": "a", "n": a}, {"name": "b", "n": b}]});
    let moved = json!({"list": [{"name": "b", "n": 2}, {"name": "a", "n": 0}, {"name": "c", "n": 0}]});
    assert_eq!(found(&keyed, &spec(1, 1), None), Vec::<String>::new());
    assert_eq!(
        found(&keyed, &moved, Some(&spec(1, 1))),
        ["spec.list[1].n: Invalid value: 0: failed rule: self >= oldSelf"]
    );
    let map = json!({"type": "object", "properties": {"spec": {"type": "object", "additionalProperties": {"type": "integer",
        "x-kubernetes-validations": [{"rule": "self > oldSelf"}]}}}});
    assert_eq!(compiled(&map), Vec::<String>::new());
    assert_eq!(
        found(&map, &json!({"a.b": 1, "c": 1}), Some(&json!({"a.b": 1}))),
        ["spec[a.b]: Invalid value: 1: failed rule: self > oldSelf"]
    );
}

#[test]
fn a_rule_may_ask_whether_there_is_an_old_value() {
    let size = json!({"size": {"type": "integer"}});
    let rules = json!([{"rule": "oldSelf.hasValue() ? self.size >= oldSelf.value().size : self.size == 1", "optionalOldSelf": true}]);
    let schema = schema(&size, &rules);
    assert_eq!(compiled(&schema), Vec::<String>::new());
    let spec = |size: i64| json!({ "size": size });
    assert_eq!(found(&schema, &spec(1), None), Vec::<String>::new());
    assert_eq!(found(&schema, &spec(2), None).len(), 1);
    assert_eq!(found(&schema, &spec(2), Some(&spec(1))), Vec::<String>::new());
    assert_eq!(found(&schema, &spec(2), Some(&spec(3))).len(), 1);
}

#[test]
fn what_was_wrong_before_may_stay_and_is_warned_of() {
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "a": {"type": "integer", "x-kubernetes-validations": [{"rule": "self > 5"}]}, "b": {"type": "integer"}}}}});
    let object = |a: i64, b: i64| json!({"spec": {"a": a, "b": b}});
    let (findings, warnings) = judged(&schema, &object(1, 2), Some(&object(1, 1)));
    assert_eq!((findings.len(), warnings), (0, vec!["spec.a: Invalid value: 1: failed rule: self > 5".to_owned()]));
    let (findings, _) = judged(&schema, &object(2, 1), Some(&object(1, 1)));
    assert_eq!(findings, ["spec.a: Invalid value: 2: failed rule: self > 5"]);
}

#[test]
fn values_have_the_types_of_their_schema() {
    let properties = json!({
        "when": {"type": "string", "format": "date-time"}, "long": {"type": "string", "format": "duration"},
        "raw": {"type": "string", "format": "byte"}, "part": {"type": "number"}, "either": {"x-kubernetes-int-or-string": true},
        "a-b": {"type": "string"}, "namespace": {"type": "string"}, "one_two": {"type": "boolean"},
        "map": {"type": "object", "additionalProperties": {"type": "string"}},
        "list": {"type": "array", "items": {"type": "integer"}},
        "inner": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true},
        "maybe": {"type": "object", "properties": {"x": {"type": "integer"}}},
    });
    let spec = json!({
        "when": "2026-01-02T03:04:05Z", "long": "1h30m", "raw": "aGVsbG8=", "part": 1, "either": "50%", "a-b": "x", "namespace": "n",
        "one_two": true, "map": {"k.l": "v"}, "list": [3, 1, 2], "inner": {"kind": "K", "apiVersion": "v1", "metadata": {"name": "m"}},
    });
    for rule in [
        "self.when.getFullYear() == 2026 && self.when < timestamp('2027-01-01T00:00:00Z')",
        "self.long == duration('90m')",
        "size(self.raw) == 5 && self.raw == b'hello'",
        "self.part == 1.0 && self.part + 0.5 > 1.0",
        "self.either == '50%' && self.either != 50",
        "self.a__dash__b == 'x' && self.__namespace__ == 'n' && self.one_two",
        "self.map['k.l'] == 'v' && 'k.l' in self.map && !('x' in self.map)",
        "self.map.all(k, self.map[k].size() == 1)",
        "self.list.exists(i, i == 2) && self.list.exists_one(i, i > 2) && self.list.filter(i, i > 1).size() == 2",
        "self.list.map(i, i * 2) == [6, 2, 4] && self.list.sum() == 6 && !self.list.isSorted() && self.list.max() == 3",
        "self.inner.kind == 'K' && self.inner.metadata.name == 'm'",
        "!has(self.maybe) && !self.?maybe.hasValue() && self.?maybe.?x.orValue(7) == 7",
        "self.?list.hasValue() && self.?map['k.l'].orValue('') == 'v' && self.list[?9].orValue(5) == 5",
        "'é'.size() == 1 && size('é') == 1 && size([1]) == 1 && {'a': 1}.size() == 1",
        "self.list.all(i, self.?list.optMap(l, l.size()).orValue(0) == 3) && optional.of(2).optFlatMap(l, optional.of(l + 1)).value() == 3",
        "optional.of(1).optMap(l, 3).hasValue()",
        "optional.of(1).optMap(l, l + 3).value() == 4",
        "self.?list.optMap(l, l.size()).hasValue()",
        "self.?list.optMap(l, l.size()).value() == 3",
        "self.?list.optMap(l, l.size()).orValue(0) == 3",
        "!self.?maybe.optMap(m, m.x).hasValue()",
        "self.?maybe.optMap(m, m.x).orValue(1) == 1",
    ] {
        assert!(holds(&properties, rule, &spec), "{rule}");
    }
}

#[test]
fn the_libraries_of_kubernetes_are_there() {
    let properties = json!({"s": {"type": "string"}, "l": {"type": "array", "items": {"type": "string"}}});
    let spec = json!({"s": "hello world", "l": ["a", "b"]});
    for rule in [
        "self.s.find('[a-z]+') == 'hello' && self.s.findAll('o').size() == 2 && self.s.matches('^hello')",
        "self.s.split(' ') == ['hello', 'world'] && self.l.join(',') == 'a,b' && self.s.upperAscii() == 'HELLO WORLD'",
        "self.s.indexOf('o') == 4 && self.s.substring(0, 5) == 'hello' && self.s.replace('l', 'L', 1) == 'heLlo world' && self.s.charAt(0) == 'h'",
        "'%s has %d'.format(['x', 3]) == 'x has 3' && strings.quote('a') == '\"a\"' && ' a '.trim() == 'a'",
        "self.l.indexOf('b') == 1 && sets.contains(self.l, ['a']) && sets.intersects(self.l, ['b', 'c']) && !sets.equivalent(self.l, ['a'])",
        "isURL('https://a.example:8080/p?q=1') && url('https://a.example:8080/p?q=1').getHostname() == 'a.example' && url('https://a.example:8080/p?q=1').getPort() == '8080'",
        "quantity('1Gi').isGreaterThan(quantity('500Mi')) && isQuantity('5k') && quantity('50k').add(20).compareTo(quantity('50020')) == 0",
        "ip('192.168.0.1').family() == 4 && isIP('::1') && cidr('192.168.0.0/24').containsIP('192.168.0.7') && cidr('10.0.0.0/8').prefixLength() == 8",
        "!format.dns1123Label().validate('abc').hasValue() && format.dns1123Label().validate('A_B').hasValue()",
        "semver('1.2.3').isLessThan(semver('1.10.0')) && semver('v1.2', true).major() == 1 && isSemver('1.0.0')",
        "optional.of(1).hasValue() && optional.none().orValue(2) == 2 && !optional.ofNonZeroValue('').hasValue()",
        "int('5') == 5 && string(5) == '5' && double(1) == 1.0 && bool('true') && dyn(1) == 1 && 5 % 2 == 1",
        "duration('1h').getMinutes() == 60 && timestamp('2026-01-02T03:04:05Z') + duration('1h') > timestamp('2026-01-02T03:04:05Z')",
        "[1, 2].all(i, i > 0) && {'a': 1}.a == 1 && (true ? 'x' : 'y') == 'x' && 1 < 2.5 && 1u < 2u",
    ] {
        assert!(holds(&properties, rule, &spec), "{rule}");
    }
}

#[test]
fn what_costs_too_much_ends_itself() {
    let list = json!({"l": {"type": "array", "items": {"type": "integer"}}});
    let spec = json!({"l": (0..300).collect::<Vec<_>>()});
    let schema = schema(
        &list,
        &json!([{"rule": "self.l.all(a, self.l.all(b, self.l.all(c, a + b + c >= 0)))", "message": "slow"}, {"rule": "false"}]),
    );
    assert_eq!(compiled(&schema), Vec::<String>::new());
    assert_eq!(
        found(&schema, &spec, None),
        [
            "spec: Invalid value: \"object\": 'operation cancelled: actual cost limit exceeded': no further validation rules will be run due to call cost exceeds limit for rule: slow"
        ],
    );
}

#[test]
fn rules_that_were_stored_unchecked_refuse_writes_alone() {
    let schema = schema(&json!({"size": {"type": "integer"}}), &json!([{"rule": "self.sise > 1"}]));
    let found = found(&schema, &json!({"size": 1}), None);
    assert!(
        found.len() == 1
            && found[0].starts_with("spec: Invalid value: \"object\": rule compile error: compilation failed: "),
        "{found:?}"
    );
}
