//! Begins and ends a rotation where the authority is kept. A power cut after any write leaves a state that a bridge starts
//! with.

use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::PostParams;
use kube::{Api, Client};

use super::authority::Authority;
use super::keep::{ROTATION, ROTATION_FIELD, SECRET, of_folder, of_secret, refused, write_private};
use super::rotation::{Pair, Rotation};
use super::{NAMESPACE, PkiError, clock};

/// A rotation of this authority that begins now.
fn begun(authority: &Authority, delay: Duration, renew_within: Duration) -> Result<Rotation, PkiError> {
    if authority.rotation().is_some_and(|last| last.lasts() || last.next.is_some()) {
        return Err(PkiError::Rotating);
    }
    let now = clock::now();
    // Programs select an authority by name, so it has one of its own.
    let days = now.duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_secs() / 86_400;
    let next = Authority::create(&format!("{days}-{}", &authority.fingerprint()[..8]))?;
    let pair = Pair { certificate: next.certificate_pem(), key: next.key_pem() };
    Ok(Rotation::begin(pair, now, delay, renew_within))
}

/// The end of the rotation of this authority: its last state, and the new authority if that is not stored in its place.
fn ended(authority: &Authority, delay: Duration) -> Result<(Rotation, Pair), PkiError> {
    let last = authority.rotation().ok_or(PkiError::NotRotating)?;
    let pair = last.next.clone().ok_or(PkiError::NotRotating)?;
    Ok((last.finish(clock::now(), delay), pair))
}

fn text(rotation: &Rotation) -> Result<String, PkiError> {
    serde_json::to_string(rotation).map_err(|source| PkiError::Rotation { what: ROTATION.to_owned(), source })
}

/// Begins a rotation of the authority of a state folder. Bridges know it from their next start.
///
/// # Errors
/// One is under way, or a file cannot be read or written.
pub fn rotate_in_folder(state: &Path, delay: Duration, renew_within: Duration) -> Result<(), PkiError> {
    let rotation = begun(&of_folder(state)?, delay, renew_within)?;
    write_private(&state.join("pki").join(ROTATION), text(&rotation)?.as_bytes())
}

/// Files to write at the end of a rotation, in this order.
fn last_files(folder: &Path, rotation: &Rotation, pair: &Pair) -> Result<Vec<(PathBuf, String)>, PkiError> {
    let file = folder.join(ROTATION);
    let stored = Rotation { next: None, ..rotation.clone() };
    Ok(vec![
        // From here on the new authority counts, wherever it is stored.
        (file.clone(), text(rotation)?),
        (folder.join("ca.key"), pair.key.clone()),
        (folder.join("ca.crt"), pair.certificate.clone()),
        (file, text(&stored)?),
    ])
}

/// Ends the rotation of the authority of a state folder: the new one replaces the old one. Bridges restart within `delay`.
///
/// # Errors
/// No rotation is under way, or a file cannot be read or written.
pub fn finish_in_folder(state: &Path, delay: Duration) -> Result<(), PkiError> {
    let (rotation, pair) = ended(&of_folder(state)?, delay)?;
    for (path, text) in last_files(&state.join("pki"), &rotation, &pair)? {
        write_private(&path, text.as_bytes())?;
    }
    Ok(())
}

/// Begins a rotation of the authority that all replicas share.
///
/// # Errors
/// One is under way, or the Secret cannot be read or written, as when another client changes it at the same time.
pub async fn rotate_in_cluster(client: &Client, delay: Duration, renew_within: Duration) -> Result<(), PkiError> {
    change(client, |authority| Ok(vec![(ROTATION_FIELD, text(&begun(authority, delay, renew_within)?)?)])).await
}

/// Ends the rotation of the authority that all replicas share.
///
/// # Errors
/// Same as [`rotate_in_cluster`].
pub async fn finish_in_cluster(client: &Client, delay: Duration) -> Result<(), PkiError> {
    change(client, |authority| {
        let (rotation, pair) = ended(authority, delay)?;
        let stored = Rotation { next: None, ..rotation };
        Ok(vec![("tls.crt", pair.certificate), ("tls.key", pair.key), (ROTATION_FIELD, text(&stored)?)])
    })
    .await
}

/// Changes fields of the Secret at once.
async fn change(
    client: &Client,
    fields: impl FnOnce(&Authority) -> Result<Vec<(&'static str, String)>, PkiError>,
) -> Result<(), PkiError> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
    let mut secret = secrets.get(SECRET).await.map_err(refused)?;
    let fields = fields(&of_secret(&secret)?)?;
    let data = secret.data.get_or_insert_default();
    data.extend(fields.into_iter().map(|(name, text)| (name.to_owned(), ByteString(text.into_bytes()))));
    // It has its resourceVersion: a change in between is a conflict.
    secrets.replace(SECRET, &PostParams::default(), &secret).await.map(drop).map_err(refused)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pki::keep::{in_folder, to_secret};

    const HOUR: Duration = Duration::from_secs(3600);

    fn prints(state: &Path) -> Vec<String> {
        let authority = in_folder(state).unwrap();
        std::iter::once(authority.fingerprint()).chain(authority.next_fingerprint()).collect()
    }

    #[test]
    fn new_authority_stands_beside_the_old_and_then_replaces_it() {
        let state = tempfile::tempdir().unwrap();
        let old = prints(state.path());
        assert!(matches!(finish_in_folder(state.path(), HOUR), Err(PkiError::NotRotating)));
        rotate_in_folder(state.path(), HOUR, HOUR).unwrap();
        let both = prints(state.path());
        assert_eq!((both.len(), &both[0]), (2, &old[0]));
        assert!(matches!(rotate_in_folder(state.path(), HOUR, HOUR), Err(PkiError::Rotating)));
        finish_in_folder(state.path(), HOUR).unwrap();
        assert_eq!(prints(state.path()), both[1..]);
        let text = std::fs::read_to_string(state.path().join("pki").join(ROTATION)).unwrap();
        assert!(!text.contains("PRIVATE KEY"), "the key is in its place alone");
        rotate_in_folder(state.path(), HOUR, HOUR).unwrap();
        assert_eq!(prints(state.path())[0], both[1], "another rotation may follow");
    }

    #[test]
    fn power_cut_in_a_finish_leaves_the_new_authority() {
        for writes in 1..4 {
            let state = tempfile::tempdir().unwrap();
            let _ = prints(state.path());
            rotate_in_folder(state.path(), HOUR, HOUR).unwrap();
            let new = prints(state.path()).remove(1);
            let (rotation, pair) = ended(&of_folder(state.path()).unwrap(), HOUR).unwrap();
            for (path, text) in &last_files(&state.path().join("pki"), &rotation, &pair).unwrap()[..writes] {
                write_private(path, text.as_bytes()).unwrap();
            }
            assert_eq!(prints(state.path()), [new.as_str()], "after {writes} writes");
            assert!(matches!(rotate_in_folder(state.path(), HOUR, HOUR), Err(PkiError::Rotating)), "finish it first");
            finish_in_folder(state.path(), HOUR).unwrap();
            assert_eq!(prints(state.path()), [new.as_str()]);
            assert!(!in_folder(state.path()).unwrap().rotation().unwrap().lasts());
        }
    }

    #[test]
    fn secret_holds_both_authorities() {
        let old = Authority::create("x").unwrap();
        let rotation = begun(&old, HOUR, HOUR).unwrap();
        let mut secret = to_secret(&old);
        let stored = ByteString(text(&rotation).unwrap().into_bytes());
        secret.data.get_or_insert_default().insert(ROTATION_FIELD.to_owned(), stored);
        let read = of_secret(&secret).unwrap();
        assert_eq!((read.fingerprint(), read.trusted().len()), (old.fingerprint(), 2));
        let damaged = ByteString(b"{".to_vec());
        secret.data.get_or_insert_default().insert(ROTATION_FIELD.to_owned(), damaged);
        assert!(of_secret(&secret).err().unwrap().to_string().contains("rotation"));
    }
}
