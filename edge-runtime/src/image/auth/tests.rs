//! Logins for registries.

use super::*;

fn users(keyring: &Keyring, image: &str) -> Vec<String> {
    let reference = Reference::parse(image).unwrap();
    keyring.matching(&reference.registry, &reference).iter().map(|c| c.username.clone()).collect()
}

#[test]
fn logins_are_matched_as_the_kubelet_does() {
    let mut keyring = Keyring::default();
    let auth = STANDARD.encode("hub:pass:word\0\0");
    keyring
        .add(
            format!(
                r#"{{"auths":{{"https://index.docker.io/v1/":{{"auth":"{auth}"}},
                    "reg.example:5000":{{"username":"whole","password":"p"}},
                    "reg.example:5000/team":{{"username":"team","password":"p"}},
                    "*.cloud.example":{{"username":"star","password":"p"}}}}}}"#
            )
            .as_bytes(),
            None,
        )
        .unwrap();
    keyring.add(br#"[{"other.example":{"username":"old","password":"p"}}]"#, None).unwrap();
    assert_eq!(users(&keyring, "busybox"), ["hub"]);
    assert_eq!(users(&keyring, "reg.example:5000/team/app"), ["team", "whole"]);
    assert_eq!(users(&keyring, "reg.example:5000/teams"), ["whole"]);
    assert_eq!(users(&keyring, "a.cloud.example/x"), ["star"]);
    assert_eq!(users(&keyring, "other.example/x"), ["old"]);
    for none in ["reg.example/team", "a.b.cloud.example/x", "cloud.example/x", "evil.example/x"] {
        assert!(users(&keyring, none).is_empty(), "{none}");
    }
    let hub = keyring.matching("docker.io", &Reference::parse("a").unwrap())[0];
    assert_eq!(hub.password, "pass:word");
    assert_eq!(format!("{hub:?}"), "Credential(hub)");
}

#[test]
fn entries_without_a_login_are_ignored() {
    for document in [
        r#"{"auths":{"r.example":{}},"credsStore":"desktop"}"#,
        r#"{"auths":{"r.example":{"username":"","password":"","auth":""}}}"#,
        r#"{"credsStore":"desktop","credHelpers":{"r.example":"helper"}}"#,
        "{}",
    ] {
        let mut keyring = Keyring::default();
        keyring.add(document.as_bytes(), None).unwrap();
        assert!(users(&keyring, "r.example/app").is_empty(), "{document}");
    }
    let mut keyring = Keyring::default();
    keyring.add(br#"{"auths":{"r.example":{"identitytoken":"t"}}}"#, None).unwrap();
    assert_eq!(users(&keyring, "r.example/app"), [""], "a token is a login");
}

#[test]
fn auth_wins_over_username() {
    let mut keyring = Keyring::default();
    let auth = STANDARD.encode("right:secret");
    keyring
        .add(format!(r#"{{"auths":{{"r.example":{{"username":"wrong","auth":"{auth}"}}}}}}"#).as_bytes(), None)
        .unwrap();
    let found = keyring.matching("r.example", &Reference::parse("r.example/a").unwrap())[0];
    assert_eq!((found.username.as_str(), found.password.as_str()), ("right", "secret"));
}

#[test]
fn errors_hold_no_secret() {
    for bad in [r#"{"auths":{"r":{"auth":"c2VjcmV0"}}}"#, r#"{"auths":"secret"}"#, r#"["secret"]"#, "secret"] {
        let error = Keyring::default().add(bad.as_bytes(), None).unwrap_err();
        assert!(!error.contains("secret") && !error.contains("c2VjcmV0"), "{error}");
    }
}
