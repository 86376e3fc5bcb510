//! Signatures of programs: an Ed25519 signature over the text of their digest, by one of the keys in the configuration.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::signature::{ED25519, UnparsedPublicKey};

use super::error::UpgradeError;

/// Whether programs of this digest (`sha256:...`) may come here. Without keys everything may.
///
/// # Errors
/// Keys are configured, and none of them made a signature of it.
pub(crate) fn verify(keys: &[String], digest: &str, signature: Option<&str>) -> Result<(), UpgradeError> {
    if keys.is_empty() {
        return Ok(());
    }
    let Some(signature) = signature else {
        return Err(UpgradeError::Refused(format!("{digest} is not signed, and upgrade.keys names who may sign")));
    };
    let bad = |what: String, why: &str| UpgradeError::Bad { what, why: why.to_owned() };
    let signature = STANDARD.decode(signature.trim());
    let signature = signature.map_err(|error| bad("the signature".into(), &error.to_string()))?;
    for (number, key) in keys.iter().enumerate() {
        let key = STANDARD.decode(key.trim()).ok().filter(|key| key.len() == 32);
        let key = key.ok_or_else(|| bad(format!("upgrade.keys[{number}]"), "is not base64 of 32 bytes"))?;
        if UnparsedPublicKey::new(&ED25519, key).verify(digest.as_bytes(), &signature).is_ok() {
            return Ok(());
        }
    }
    Err(UpgradeError::Refused(format!("the signature of {digest} is of none of upgrade.keys")))
}

#[cfg(test)]
mod tests {
    use ring::signature::{Ed25519KeyPair, KeyPair};

    use super::*;

    #[test]
    fn only_a_signature_of_a_known_key_over_this_digest_counts() {
        let pair = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
        let key = STANDARD.encode(pair.public_key().as_ref());
        let signature = STANDARD.encode(pair.sign(b"sha256:aa"));
        let other = STANDARD.encode(Ed25519KeyPair::from_seed_unchecked(&[8; 32]).unwrap().public_key().as_ref());
        verify(&[], "sha256:aa", None).unwrap();
        verify(&[other.clone(), key.clone()], "sha256:aa", Some(&format!("{signature}\n"))).unwrap();
        for (keys, digest, signature) in [
            (&key, "sha256:aa", None),
            (&key, "sha256:ab", Some(&*signature)),
            (&other, "sha256:aa", Some(&*signature)),
            (&key, "sha256:aa", Some("AAAA")),
            (&key, "sha256:aa", Some("not base64")),
            (&"x".to_owned(), "sha256:aa", Some(&*signature)),
        ] {
            verify(std::slice::from_ref(keys), digest, signature).unwrap_err();
        }
    }
}
