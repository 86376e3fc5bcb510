//! Invalid tokens, and the tokens of pods.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::Accounts;
use super::jwt::SigningKey;
use crate::admission::service_account::inject;

#[test]
fn only_what_this_key_signed_is_read() {
    let key = SigningKey::from_pkcs8(&SigningKey::generate().unwrap()).unwrap();
    let other = SigningKey::from_pkcs8(&SigningKey::generate().unwrap()).unwrap();
    let claims = json!({"sub": "x", "exp": 1});
    let token = key.sign(&claims).unwrap();
    assert_eq!(key.verify(&token), Some(claims.clone()));
    assert_eq!(other.verify(&token), None);
    let parts: Vec<&str> = token.split('.').collect();
    let encode = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let forged = encode(json!({"sub": "admin", "exp": 1}));
    let unsigned = encode(json!({"alg": "none"}));
    for bad in [
        format!("{}.{forged}.{}", parts[0], parts[2]),
        format!("{unsigned}.{}.", parts[1]),
        format!("{unsigned}.{}.{}", parts[1], parts[2]),
        format!("{}.{}", parts[0], parts[1]),
        "x".repeat(20_000),
        String::new(),
    ] {
        assert_eq!(key.verify(&bad), None, "{bad}");
    }
    assert!(SigningKey::from_pkcs8(b"no key").is_err());
}

#[test]
fn published_key_verifies_tokens() {
    let accounts = Accounts::new(&Accounts::new_key().unwrap(), String::new()).unwrap();
    let token = accounts.key.sign(&json!({"sub": "x"})).unwrap();
    let published = accounts.jwks()["keys"][0].clone();
    let decode = |text: &str| URL_SAFE_NO_PAD.decode(text).unwrap();
    let half = |name: &str| decode(published[name].as_str().unwrap());
    let point = [vec![4], half("x"), half("y")].concat();
    let (signed, signature) = token.rsplit_once('.').unwrap();
    let key = ring::signature::UnparsedPublicKey::new(&ring::signature::ECDSA_P256_SHA256_FIXED, point);
    assert!(key.verify(signed.as_bytes(), &decode(signature)).is_ok());
    assert_eq!(accounts.issuer("https://a/openid/v1/jwks")["issuer"], super::ISSUER);
}

fn injected(account: Value, spec: Value) -> Value {
    let mut pod = json!({"spec": spec});
    inject(&account, &mut pod, || "kube-api-access-abcde".to_owned());
    pod["spec"].clone()
}

#[test]
fn containers_get_the_account_unless_they_have_or_decline_it() {
    let path = "/var/run/secrets/kubernetes.io/serviceaccount";
    let spec = injected(
        json!({}),
        json!({"initContainers": [{"name": "i"}], "containers": [{"name": "a", "volumeMounts": null},
            {"name": "b", "volumeMounts": [{"name": "own", "mountPath": path}]}], "volumes": [{"name": "own"}]}),
    );
    assert_eq!(spec["initContainers"][0]["volumeMounts"][0]["mountPath"], path);
    assert_eq!(spec["containers"][0]["volumeMounts"][0]["readOnly"], true);
    assert_eq!(spec["containers"][1]["volumeMounts"].as_array().map(Vec::len), Some(1));
    assert_eq!(spec["volumes"][1]["name"], "kube-api-access-abcde");
    assert_eq!(spec["volumes"][1]["projected"]["sources"][0]["serviceAccountToken"]["expirationSeconds"], 3607);

    let plain = json!({"containers": [{"name": "a"}]});
    assert_eq!(injected(json!({}), plain.clone()).get("initContainers"), None, "not even null");
    let declined = |account: Value, pod: Option<bool>| {
        let mut spec = plain.clone();
        if let Some(pod) = pod {
            spec["automountServiceAccountToken"] = pod.into();
        }
        injected(account, spec)["volumes"].is_null()
    };
    assert!(declined(json!({"automountServiceAccountToken": false}), None));
    assert!(!declined(json!({"automountServiceAccountToken": false}), Some(true)));
    assert!(declined(json!({}), Some(false)));
    let own = json!({"containers": [{"name": "b", "volumeMounts": [{"name": "own", "mountPath": path}]}]});
    assert!(injected(json!({}), own)["volumes"].is_null());
}

#[test]
fn volume_of_an_earlier_injection_is_used_again() {
    let path = "/var/run/secrets/kubernetes.io/serviceaccount";
    let spec = injected(
        json!({}),
        json!({"containers": [{"name": "a", "volumeMounts": [{"name": "kube-api-access-first", "mountPath": path}]},
            {"name": "debugger"}], "volumes": [{"name": "kube-api-access-first", "projected": {}}]}),
    );
    assert_eq!(spec["volumes"], json!([{"name": "kube-api-access-first", "projected": {}}]));
    assert_eq!(spec["containers"][1]["volumeMounts"][0]["name"], "kube-api-access-first");
}
