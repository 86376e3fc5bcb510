//! Tables and messages of the verb.

use super::*;
use serde_json::json;

#[test]
fn namespace_of_another_device_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let of = |words: &[&'static str]| {
        let words = words.iter().copied().chain(["--root", root.path().to_str().unwrap()]);
        run(VERB.parse(lexopt::Parser::from_args(words)).unwrap())
    };
    let refused = of(&["get", "a/t1", "-n", "b"]);
    assert!(matches!(&refused, Err(CliError::Usage(why)) if why.contains("in namespace a")), "{refused:?}");
    for fine in [["get", "a/t1", "-n", "a"], ["get", "t1", "-n", "b"]] {
        assert!(matches!(of(&fine), Err(CliError::Failed(_))), "no helper listens: {fine:?}");
    }
}

#[test]
fn words_are_a_question() {
    let named = |namespace: &str, name: &str| Named { namespace: namespace.into(), name: name.into() };
    let of = |words: &[&str]| question(words, "default").map_err(|error| format!("{error:?}"));
    assert_eq!(of(&[]), Ok(Question::Get { device: None }));
    assert_eq!(of(&["get", "t1"]), Ok(Question::Get { device: Some(named("default", "t1")) }));
    assert_eq!(of(&["watch", "dev/t1"]), Ok(Question::Watch { device: Some(named("dev", "t1")) }));
    let set = Question::Set { device: named("default", "t1"), property: "led".into(), value: "a=b".into() };
    assert_eq!(of(&["set", "t1", "led=a=b"]), Ok(set));
    assert_eq!(of(&["mappers"]), Ok(Question::Mappers {}));
    let history = |property: Option<&str>| {
        Ok(Question::History { device: named("dev", "t1"), property: property.map(str::to_owned) })
    };
    assert_eq!(of(&["history", "dev/t1"]), history(None));
    assert_eq!(of(&["history", "dev/t1", "temp"]), history(Some("temp")));
    for wrong in
        [&["t1"][..], &["mappers", "m"], &["history"], &["set", "t1"], &["set", "t1", "led"], &["get", "a", "b"]]
    {
        assert!(of(wrong).is_err(), "{wrong:?}");
    }
}

#[test]
fn the_table_has_a_line_per_property() {
    let devices = json!([
        {"namespace": "default", "name": "t1", "state": "online", "properties": [
            {"name": "led", "desired": {"value": "ON"}, "local": {"value": "OFF"}, "reported": null, "told": false},
            {"name": "temp", "desired": null, "local": null, "reported": {"value": "2\n1"}, "told": true},
        ]},
        {"namespace": "default", "name": "t2", "state": "", "properties": []},
    ]);
    let expected = "DEVICE       STATE    PROPERTY   DESIRED      REPORTED   TOLD\n\
                        default/t1   online   led        OFF (here)   -          -\n\
                        default/t1   online   temp       -            2?1        yes\n\
                        default/t2   -        -          -            -          -\n";
    assert_eq!(table(&devices), expected);
    assert_eq!(names(&devices), ["default/t1", "default/t2"]);
    assert_eq!(names(&json!([{"name": "m", "protocol": "modbus"}])), ["m"]);
    assert_eq!(names(&json!({"namespace": "dev", "name": "t1", "properties": []})), ["dev/t1"]);
}

#[test]
fn changes_have_a_line_each() {
    let of_temp = json!([{"at": "2026-03-01T10:00:00.000Z", "value": "2\n1"}, {"at": "2026-03-01T10:00:01.000Z", "value": "3",
            "unsynchronized": true}]);
    let device = json!({"properties": [{"name": "led", "changes": []}, {"name": "temp", "changes": of_temp}]});
    let expected = "TIME                        PROPERTY   VALUE\n\
                        2026-03-01T10:00:00.000Z    temp       2?1\n\
                        2026-03-01T10:00:01.000Z?   temp       3\n";
    assert_eq!(history(&device), expected);
}

#[test]
fn mappers_have_a_line_each() {
    let listed = json!([
        {"name": "m\n", "protocol": "modbus", "socket": "m.sock", "pod": "", "devices": 7, "waiting": 0, "answers": true},
        {"name": "n", "protocol": "ble", "socket": "n.sock", "pod": "0d9e", "devices": 0, "waiting": 2, "answers": false},
        {"name": "o", "protocol": "ble", "socket": "o.sock", "pod": "", "replaced": true, "answers": true},
    ]);
    let expected = "MAPPER   PROTOCOL   SOCKET   DEVICES   WAITING   STATE            POD\n\
                        m?       modbus     m.sock   7         0         ok               -\n\
                        n        ble        n.sock   0         2         takes no calls   0d9e\n\
                        o        ble        o.sock   0         0         replaced         -\n";
    assert_eq!(mappers(&listed), expected);
}
