//! Where the authority is kept: files of a state folder (standalone) or a Secret (replicas on a cluster).

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, fchown};
use std::path::Path;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};

use super::authority::Authority;
use super::rotation::Rotation;
use super::{NAMESPACE, PkiError, clock};

/// What the authority of a state folder is called in its certificate.
const NAME: &str = "standalone";
/// Name of the Secret that replicas share.
pub const SECRET: &str = "bridge-authority";
/// File of the last rotation, below `pki`.
pub(super) const ROTATION: &str = "rotation.json";
/// Field of the last rotation in the Secret.
pub(super) const ROTATION_FIELD: &str = "rotation";

/// Reads the authority from `DIR/pki`, or makes one there.
///
/// # Errors
/// A half pair is an error, never replaced: a new authority would lock out every node that pinned the old.
pub fn in_folder(state: &Path) -> Result<Authority, PkiError> {
    read_or_make(state).inspect(warn_of_end)
}

/// Reads the authority from `DIR/pki`, and makes nothing: for commands. Root may run them, and the bridge could not read what
/// root has made there.
///
/// # Errors
/// A file is missing, or is damaged.
pub fn of_folder(state: &Path) -> Result<Authority, PkiError> {
    read(&state.join("pki")).inspect(warn_of_end)
}

/// Reads the authority from the folder of the keys, in the state of its last rotation.
fn read(folder: &Path) -> Result<Authority, PkiError> {
    let text = |path: &Path| fs::read_to_string(path).map_err(at(path));
    let (certificate, key, file) = (folder.join("ca.crt"), folder.join("ca.key"), folder.join(ROTATION));
    let place = file.display().to_string();
    let rotation = if file.exists() { Some(rotation(&place, text(&file)?.as_bytes())?) } else { None };
    Authority::in_rotation(&place, rotation, || {
        Authority::from_pem(&certificate.display().to_string(), &text(&certificate)?, &text(&key)?)
    })
}

fn rotation(what: &str, text: &[u8]) -> Result<Rotation, PkiError> {
    serde_json::from_slice(text).map_err(|source| PkiError::Rotation { what: what.to_owned(), source })
}

/// Nodes look at the end of the authority's certificate no more than rustls does, but kubectl does. By a clock that is
/// years ahead it has ended, too: so nothing is made again, and nothing refused.
fn warn_of_end(authority: &Authority) {
    let ends = authority.ends();
    if ends <= clock::now() {
        let end = jiff::Timestamp::try_from(ends).map_or_else(|_| "once".to_owned(), |end| end.to_string());
        log::error!(
            "the authority's certificate ended at {end} by this host's clock: nodes stay connected, kubectl refuses it; \
             is the clock right?"
        );
    }
}

fn read_or_make(state: &Path) -> Result<Authority, PkiError> {
    let folder = state.join("pki");
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(at(&folder))?;
    let (certificate, key) = (folder.join("ca.crt"), folder.join("ca.key"));
    match (certificate.exists(), key.exists()) {
        (true, true) => read(&folder),
        (false, false) => {
            let authority = Authority::create(NAME)?;
            write_private(&key, authority.key_pem().as_bytes())?;
            write_private(&certificate, authority.certificate_pem().as_bytes())?;
            Ok(authority)
        }
        // A first start that was cut off between the two, or the certificate was lost: nodes know the key.
        (false, true) => {
            let text = fs::read_to_string(&key).map_err(at(&key))?;
            let authority = Authority::of_key(&key.display().to_string(), NAME, &text)?;
            write_private(&certificate, authority.certificate_pem().as_bytes())?;
            read(&folder)
        }
        (true, false) => Err(PkiError::HalfPair { found: certificate, missing: key }),
    }
}

/// The key for service account tokens, PKCS #8, from `DIR/pki/sa.key`; made there when absent. Another key would only
/// make every pod fetch new tokens.
///
/// # Errors
/// The file cannot be read or written.
pub fn account_key(state: &Path, new: impl FnOnce() -> anyhow::Result<Vec<u8>>) -> anyhow::Result<Vec<u8>> {
    let path = state.join("pki/sa.key");
    if path.exists() {
        return Ok(fs::read(&path).map_err(at(&path))?);
    }
    let key = new()?;
    write_private(&path, &key)?;
    Ok(key)
}

/// Reads the authority that all replicas share, or makes it. Of two that make it at once, the loser takes
/// the winner's.
pub async fn in_cluster(client: &Client) -> Result<Authority, PkiError> {
    shared(client).await.inspect(warn_of_end)
}

/// Reads the authority that all replicas share, if there is one.
///
/// # Errors
/// The API does not answer, or the Secret is damaged.
pub async fn of_cluster(client: &Client) -> Result<Option<Authority>, PkiError> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
    secrets.get_opt(SECRET).await.map_err(refused)?.map(|secret| of_secret(&secret)).transpose()
}

pub(super) fn refused(source: kube::Error) -> PkiError {
    PkiError::Secret { name: SECRET.to_owned(), source: Box::new(source) }
}

async fn shared(client: &Client) -> Result<Authority, PkiError> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
    if let Some(authority) = of_cluster(client).await? {
        return Ok(authority);
    }
    ensure_namespace(client).await.map_err(refused)?;
    let authority = Authority::create("cluster")?;
    match secrets.create(&PostParams::default(), &to_secret(&authority)).await {
        Ok(_) => Ok(authority),
        Err(kube::Error::Api(status)) if status.is_already_exists() => {
            of_secret(&secrets.get(SECRET).await.map_err(refused)?)
        }
        Err(error) => Err(refused(error)),
    }
}

/// Makes the namespace of what bridges share. Fine when it is there or when it may only be read.
pub async fn ensure_namespace(client: &Client) -> Result<(), kube::Error> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let metadata = ObjectMeta { name: Some(NAMESPACE.to_owned()), ..ObjectMeta::default() };
    match namespaces.create(&PostParams::default(), &Namespace { metadata, ..Namespace::default() }).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() || status.is_forbidden() => Ok(()),
        Err(error) => Err(error),
        Ok(_) => Ok(()),
    }
}

pub(super) fn to_secret(authority: &Authority) -> Secret {
    let data = [("tls.crt", authority.certificate_pem()), ("tls.key", authority.key_pem())];
    Secret {
        metadata: ObjectMeta { name: Some(SECRET.to_owned()), ..ObjectMeta::default() },
        type_: Some("kubernetes.io/tls".to_owned()),
        data: Some(data.into_iter().map(|(k, v)| (k.to_owned(), ByteString(v.into_bytes()))).collect()),
        ..Secret::default()
    }
}

pub(super) fn of_secret(secret: &Secret) -> Result<Authority, PkiError> {
    let field = |field: &'static str| {
        let data = secret.data.as_ref().and_then(|data| data.get(field));
        data.and_then(|bytes| std::str::from_utf8(&bytes.0).ok())
            .ok_or(PkiError::SecretField { name: SECRET.to_owned(), field })
    };
    let place = format!("secret {NAMESPACE}/{SECRET}");
    let stored = secret.data.as_ref().and_then(|data| data.get(ROTATION_FIELD));
    let rotation = stored.map(|text| rotation(&place, &text.0)).transpose()?;
    Authority::in_rotation(&place, rotation, || Authority::from_pem(&place, field("tls.crt")?, field("tls.key")?))
}

/// Writes a file that only the owner of its folder may read, so that it is there whole or not at all, also after a power
/// cut. Root may do it in a folder of the service's user, who may have made a link to a file of root: it is not followed.
pub fn write_private(path: &Path, bytes: &[u8]) -> Result<(), PkiError> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let partial = path.with_extension("partial");
    let write = || -> io::Result<()> {
        match fs::remove_file(&partial) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&partial)?;
        file.write_all(bytes)?;
        let owner = fs::metadata(folder)?;
        if file.metadata()?.uid() != owner.uid() {
            fchown(&file, Some(owner.uid()), Some(owner.gid()))?;
        }
        file.sync_all()?;
        fs::rename(&partial, path)?;
        fs::File::open(folder)?.sync_all()
    };
    write().map_err(at(path))
}

fn at(path: &Path) -> impl Fn(io::Error) -> PkiError {
    let path = path.to_owned();
    move |source| PkiError::File { path: path.clone(), source }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_authority_of_a_folder_stays_and_is_private() {
        let folder = tempfile::tempdir().unwrap();
        let first = in_folder(folder.path()).unwrap();
        let second = in_folder(folder.path()).unwrap();
        assert_eq!(first.certificate(), second.certificate());
        let key = folder.path().join("pki/ca.key");
        assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_lost_certificate_is_made_again_of_its_key_but_a_lost_key_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let first = in_folder(folder.path()).unwrap();
        fs::remove_file(folder.path().join("pki/ca.crt")).unwrap();
        let again = in_folder(folder.path()).unwrap();
        let name = |authority: &Authority| {
            let (_, parsed) = x509_parser::parse_x509_certificate(authority.certificate()).unwrap();
            (parsed.subject().to_string(), parsed.extensions().iter().map(|one| one.value.to_vec()).collect::<Vec<_>>())
        };
        assert_eq!((name(&again), again.key_pem()), (name(&first), first.key_pem()));
        fs::write(folder.path().join("pki/ca.key"), "x").unwrap();
        fs::remove_file(folder.path().join("pki/ca.crt")).unwrap();
        let error = in_folder(folder.path()).err().expect("no key").to_string();
        assert!(error.contains("ca.key"), "{error}");
        fs::write(folder.path().join("pki/ca.crt"), "x").unwrap();
        fs::remove_file(folder.path().join("pki/ca.key")).unwrap();
        let error = in_folder(folder.path()).err().expect("refused").to_string();
        assert!(error.contains("ca.key"), "{error}");
    }

    #[test]
    fn command_makes_no_authority() {
        let folder = tempfile::tempdir().unwrap();
        let error = of_folder(folder.path()).err().expect("none is there").to_string();
        assert!(error.contains("ca.crt") && fs::read_dir(folder.path()).unwrap().next().is_none(), "{error}");
        let made = in_folder(folder.path()).unwrap();
        assert_eq!(of_folder(folder.path()).unwrap().certificate(), made.certificate());
        let certificate = folder.path().join("pki/ca.crt");
        fs::remove_file(&certificate).unwrap();
        assert!(of_folder(folder.path()).is_err() && !certificate.exists());
    }

    #[test]
    fn private_file_is_not_written_through_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let [path, partial, other] = ["ca.key", "ca.partial", "other"].map(|name| folder.path().join(name));
        fs::write(&other, "of root").unwrap();
        std::os::unix::fs::symlink(&other, &partial).unwrap();
        write_private(&path, b"key").unwrap();
        assert_eq!((fs::read(&path).unwrap(), fs::read(&other).unwrap()), (b"key".to_vec(), b"of root".to_vec()));
        assert!(fs::symlink_metadata(&path).unwrap().is_file());
    }

    #[test]
    fn secret_and_back() {
        let authority = Authority::create("x").unwrap();
        assert_eq!(of_secret(&to_secret(&authority)).unwrap().certificate(), authority.certificate());
        assert!(of_secret(&Secret::default()).is_err());
    }
}
