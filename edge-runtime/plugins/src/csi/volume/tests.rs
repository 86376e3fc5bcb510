//! What drivers are told of a volume.

use serde_json::json;

use super::*;

fn mount() -> CsiMount {
    CsiMount {
        driver: "d.example.com".into(),
        handle: "h".into(),
        volume: "pv".into(),
        pod: CsiPod {
            uid: "uid".into(),
            name: "web-0".into(),
            namespace: "default".into(),
            service_account: "sa".into(),
        },
        source: json!({"fsType": "ext4", "volumeAttributes": {"share": "/a"}}),
        inline: false,
        access_modes: vec!["ReadWriteOnce".into()],
        mount_options: vec!["noatime".into()],
        block: false,
        read_only: false,
        fs_group: Some(2_000),
        fs_group_on_root_mismatch: false,
        driver_object: json!({"attachRequired": false}),
        attachment: Value::Null,
        stage_secret: Value::Null,
        publish_secret: Value::Null,
        tokens: Value::Null,
        capacity: None,
    }
}

fn all() -> Capabilities {
    Capabilities { stage: true, expand: true, multi_writer: true, mount_group: true }
}

fn none() -> Capabilities {
    Capabilities::default()
}

fn new(change: impl FnOnce(&mut CsiMount)) -> Result<Volume, String> {
    let mut mount = mount();
    change(&mut mount);
    Volume::new(mount)
}

fn text<'a>(map: &'a Map, key: &str) -> Option<&'a str> {
    map.get(key).map(String::as_str)
}

#[test]
fn weight_is_that_of_attributes_and_secrets() {
    let weight = |secret: Value| new(|mount| mount.publish_secret = secret).expect("valid").weight();
    let attributes = "share/a".len();
    // A publication has those of the pod, too.
    assert_eq!(weight(Value::Null), 2 * attributes);
    assert_eq!(weight(json!({"user": "YQ=="})), 2 * attributes + "usera".len());
}

#[test]
fn access_modes_are_those_of_csi() {
    for (mode, without, with) in
        [("ReadWriteOnce", 1, 7), ("ReadOnlyMany", 3, 3), ("ReadWriteMany", 5, 5), ("ReadWriteOncePod", 1, 6)]
    {
        let volume = new(|mount| mount.access_modes = vec![mode.into(), "ReadWriteMany".into()]).expect("valid");
        assert_eq!([volume.access(none()).mode, volume.access(all()).mode], [without, with], "{mode}");
    }
    assert_eq!(new(|mount| mount.access_modes.clear()).map(|volume| volume.access(none()).mode), Ok(1));
    assert!(new(|mount| mount.access_modes = vec!["Other".into()]).is_err());
    let is_exclusive = |modes: &[&str]| {
        let modes: Vec<String> = modes.iter().map(|mode| (*mode).to_owned()).collect();
        new(|mount| mount.access_modes = modes).expect("valid").is_exclusive()
    };
    assert!(is_exclusive(&["ReadWriteOncePod"]) && !is_exclusive(&["ReadWriteOnce"]) && !is_exclusive(&[]));
    assert!(!is_exclusive(&["ReadWriteOncePod", "ReadWriteMany"]));
    let block = new(|mount| mount.block = true).expect("valid");
    assert_eq!((block.access(all()).kind, block.owner(none())), (Kind::Block, None));
}

#[test]
fn fs_group_follows_the_policy_of_the_driver() {
    let owner = |change: &dyn Fn(&mut CsiMount)| new(change).expect("valid").owner(none());
    assert_eq!(owner(&|_| {}), Some(2_000));
    assert_eq!(owner(&|mount| mount.fs_group = None), None);
    assert_eq!(owner(&|mount| mount.read_only = true), None);
    assert_eq!(owner(&|mount| mount.source = Value::Null), None, "without fsType");
    assert_eq!(owner(&|mount| mount.access_modes = vec!["ReadWriteMany".into()]), None);
    assert_eq!(
        owner(&|mount| mount.access_modes = vec!["ReadWriteMany".into(), "ReadWriteOncePod".into()]),
        Some(2_000)
    );
    let policy = |policy: &str| json!({"attachRequired": false, "fsGroupPolicy": policy});
    assert_eq!(owner(&|mount| mount.driver_object = policy("None")), None);
    assert_eq!(owner(&|mount| (mount.driver_object, mount.source) = (policy("File"), Value::Null)), Some(2_000));
    assert_eq!(owner(&|mount| mount.driver_object = policy("ReadWriteOnceWithFSType")), Some(2_000));
    // The driver applies it instead.
    let volume = new(|_| {}).expect("valid");
    assert_eq!(volume.owner(all()), None);
    let group = |capabilities| match volume.access(capabilities).kind {
        Kind::Mount { group, .. } => group,
        Kind::Block => None,
    };
    assert_eq!([group(all()), group(none())], [Some(2_000), None]);
    assert!(new(|mount| mount.fs_group = Some(-1)).is_err() && new(|mount| mount.fs_group = Some(1 << 32)).is_err());
}

#[test]
fn read_only_volume_does_not_grow() {
    let capacity = |read_only| {
        new(|mount| (mount.capacity, mount.read_only) = (Some(1 << 30), read_only)).expect("valid").capacity
    };
    assert_eq!([capacity(false), capacity(true)], [Some(1 << 30), None]);
}

#[test]
fn pod_is_named_only_to_drivers_that_want_it() {
    let plain = new(|_| {}).expect("valid");
    assert_eq!(plain.context, plain.pod_context);
    let volume = new(|mount| mount.driver_object = json!({"attachRequired": false, "podInfoOnMount": true}));
    let volume = volume.expect("valid");
    assert_eq!(text(&volume.context, "csi.storage.k8s.io/pod.name"), None, "staging is for all pods");
    for (key, value) in [
        ("csi.storage.k8s.io/pod.name", "web-0"),
        ("csi.storage.k8s.io/pod.namespace", "default"),
        ("csi.storage.k8s.io/pod.uid", "uid"),
        ("csi.storage.k8s.io/serviceAccount.name", "sa"),
        ("csi.storage.k8s.io/ephemeral", "false"),
        ("share", "/a"),
    ] {
        assert_eq!(text(&volume.pod_context, key), Some(value), "{key}");
    }
}

#[test]
fn tokens_are_attributes_or_secrets() {
    let tokens = json!({"vault": {"token": "t", "expirationTimestamp": "2026-01-01T00:00:00Z"}});
    let volume = new(|mount| mount.tokens = tokens.clone()).expect("valid");
    let wanted = r#"{"vault":{"expirationTimestamp":"2026-01-01T00:00:00Z","token":"t"}}"#;
    assert_eq!(text(&volume.pod_context, TOKENS), Some(wanted));
    assert_eq!((text(&volume.context, TOKENS), text(&volume.publish_secrets, TOKENS)), (None, None));
    let volume = new(|mount| {
        mount.tokens = tokens;
        mount.driver_object = json!({"attachRequired": false, "serviceAccountTokenInSecrets": true});
    });
    let volume = volume.expect("valid");
    assert_eq!((text(&volume.pod_context, TOKENS), text(&volume.publish_secrets, TOKENS)), (None, Some(wanted)));
}

#[test]
fn attachment_is_required_unless_the_driver_needs_none() {
    let attached = json!({"attached": true, "attachmentMetadata": {"device": "/dev/sdb"}});
    let volume = new(|mount| (mount.driver_object, mount.attachment) = (Value::Null, attached.clone()));
    assert_eq!(volume.map(|volume| text(&volume.publish_context, "device").is_some()), Ok(true));
    for attachment in [Value::Null, json!({}), json!({"attached": false})] {
        let why =
            new(|mount| (mount.driver_object, mount.attachment) = (Value::Null, attachment)).expect_err("refused");
        assert!(why.contains("not attached"), "{why}");
    }
    let volume = new(|mount| mount.attachment = attached).expect("valid");
    assert!(volume.publish_context.is_empty(), "attachRequired is false");
}

#[test]
fn inline_volume_has_a_handle_of_its_pod() {
    let inline = |object: Value| new(|mount| (mount.inline, mount.driver_object) = (true, object));
    let volume = inline(json!({"volumeLifecycleModes": ["Persistent", "Ephemeral"], "podInfoOnMount": true}));
    let volume = volume.expect("valid");
    assert_eq!(volume.handle, csi_name(&["uid", "pv"]));
    assert_eq!(text(&volume.pod_context, "csi.storage.k8s.io/ephemeral"), Some("true"));
    assert_eq!(
        inline(Value::Null).expect_err("refused"),
        "volume mode \"Ephemeral\" not supported by driver d.example.com (no CSIDriver object)"
    );
    assert!(inline(json!({"attachRequired": false})).is_err() && inline(json!({"volumeLifecycleModes": []})).is_err());
    assert!(new(|mount| mount.driver_object = json!({"volumeLifecycleModes": ["Ephemeral"]})).is_err());
}

#[test]
fn hostile_volumes_are_refused() {
    type Change = fn(&mut CsiMount);
    let changes: [Change; 11] = [
        |mount| mount.driver = "../../etc".into(),
        |mount| mount.driver = String::new(),
        |mount| mount.volume = "..".into(),
        |mount| mount.pod.uid = "a/b".into(),
        |mount| mount.handle = String::new(),
        |mount| mount.handle = "h".repeat(MAX_HANDLE + 1),
        |mount| mount.source = json!({"volumeAttributes": {"a": {}}}),
        |mount| mount.source = json!({"fsType": "x".repeat(MAX_FS_TYPE + 1)}),
        |mount| mount.mount_options = vec![String::new(); MAX_OPTIONS + 1],
        |mount| mount.mount_options = vec!["o".repeat(MAX_OPTION + 1)],
        |mount| mount.stage_secret = json!({"key": "no base64!"}),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        assert!(new(change).is_err(), "{number}");
    }
    let long = new(|mount| mount.handle = "/".repeat(MAX_HANDLE)).expect("a handle is not a path");
    assert_eq!(long.handle.len(), MAX_HANDLE);
}
