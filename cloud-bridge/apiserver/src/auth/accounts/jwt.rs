//! JSON Web Tokens signed with ES256 (RFC 7515, RFC 7518 3.4). Knows nothing of what their claims mean.

use std::collections::{HashSet, VecDeque};
use std::sync::{Mutex, PoisonError};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair, UnparsedPublicKey,
};
use serde_json::{Value, json};

/// No token here comes near this.
const MAX: usize = 16 * 1024;

#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("the key for service account tokens cannot be read: {0}")]
    Read(String),
    #[error("the random generator of the system failed")]
    Random,
}

pub(crate) struct SigningKey {
    pair: EcdsaKeyPair,
    id: String,
    verified: Mutex<Verified>,
}

/// Tokens with a verified signature, by digest: verifying takes a hundred times as long as everything else of a
/// request. The API server caches the result for ten seconds (apiserver pkg/authentication/token/cache); here times and
/// objects are checked each time.
#[derive(Default)]
struct Verified {
    tokens: HashSet<[u8; 32]>,
    order: VecDeque<[u8; 32]>,
}

impl Verified {
    const MAX: usize = 1024;

    fn add(&mut self, token: [u8; 32]) {
        if self.tokens.insert(token) {
            self.order.push_back(token);
        }
        if self.order.len() > Self::MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.tokens.remove(&oldest);
        }
    }
}

impl SigningKey {
    pub(crate) fn generate() -> Result<Vec<u8>, KeyError> {
        let made = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new());
        made.map(|key| key.as_ref().to_vec()).map_err(|_| KeyError::Random)
    }

    pub(crate) fn from_pkcs8(pkcs8: &[u8]) -> Result<Self, KeyError> {
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8, &SystemRandom::new())
            .map_err(|error| KeyError::Read(error.to_string()))?;
        let id = URL_SAFE_NO_PAD.encode(digest::digest(&digest::SHA256, pair.public_key().as_ref()));
        Ok(Self { pair, id, verified: Mutex::default() })
    }

    pub(crate) fn sign(&self, claims: &Value) -> Result<String, KeyError> {
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", part(&json!({"alg": "ES256", "kid": self.id})), part(claims));
        let signature = self.pair.sign(&SystemRandom::new(), signed.as_bytes()).map_err(|_| KeyError::Random)?;
        Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }

    /// The public key as a JSON Web Key (RFC 7517).
    pub(crate) fn public(&self) -> Value {
        // An uncompressed point: 4, then both coordinates.
        let point = self.pair.public_key().as_ref();
        let half = |from: usize| URL_SAFE_NO_PAD.encode(point.get(from..from + 32).unwrap_or_default());
        json!({"use": "sig", "kty": "EC", "kid": self.id, "crv": "P-256", "alg": "ES256", "x": half(1), "y": half(33)})
    }

    /// The claims of a token that this key has signed.
    pub(crate) fn verify(&self, token: &str) -> Option<Value> {
        if token.len() > MAX {
            return None;
        }
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, claims) = signed.split_once('.')?;
        let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).ok();
        let header: Value = serde_json::from_slice(&decode(header)?).ok()?;
        if header["alg"] != "ES256" {
            return None;
        }
        let digest: [u8; 32] = digest::digest(&digest::SHA256, token.as_bytes()).as_ref().try_into().ok()?;
        let mut verified = self.verified.lock().unwrap_or_else(PoisonError::into_inner);
        if !verified.tokens.contains(&digest) {
            let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, self.pair.public_key().as_ref());
            key.verify(signed.as_bytes(), &decode(signature)?).ok()?;
            verified.add(digest);
        }
        drop(verified);
        serde_json::from_slice(&decode(claims)?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verified_tokens_are_remembered_up_to_a_bound() {
        let mut verified = Verified::default();
        let token = |number: u32| {
            let mut token = [0; 32];
            token[..4].copy_from_slice(&number.to_be_bytes());
            token
        };
        (0..2_000).for_each(|number| verified.add(token(number % 1_100)));
        assert_eq!((verified.tokens.len(), verified.order.len()), (Verified::MAX, Verified::MAX));
        assert!(verified.tokens.contains(&token(899)), "the newest one");
    }

    #[test]
    fn token_that_was_verified_is_read_again_and_no_other() {
        let key = SigningKey::from_pkcs8(&SigningKey::generate().unwrap()).unwrap();
        let token = key.sign(&json!({"sub": "a"})).unwrap();
        for _ in 0..2 {
            assert_eq!(key.verify(&token), Some(json!({"sub": "a"})));
            assert_eq!(key.verified.lock().unwrap().order.len(), 1);
        }
        assert_eq!(key.verify(&token.replacen('.', ".A", 1)), None);
        assert_eq!(key.verified.lock().unwrap().order.len(), 1);
    }
}
