//! Access to images that were pulled with a pod's login: only pods that also have that login may use them (K8s
//! pkg/kubelet/images/pullmanager, policy `NeverVerifyPreloadedImages`). Pure: decides from the record of the image, so
//! it needs no registry and works offline.

use std::collections::BTreeSet;

use crate::image::Reference;
use crate::image::auth::{Credential, Keyring};
use crate::image::registry::endpoints;
use crate::image::registry_config::{RegistryConfig, registry_for};
use crate::store::image_record::{Access, ImageRecord};

/// More logins than this are not remembered for one repository: their pods ask the registry again.
const MOST_KEYS: usize = 100;

/// A pull secret of a pod.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct PodLogin {
    /// Key from [`secret_key`].
    pub key: String,
    /// Docker config JSON; empty while the body of the Secret is not on the node.
    pub document: String,
}

/// Key of a Secret, whatever its content: users of the Secret may use images pulled with its earlier content.
pub fn secret_key(namespace: &str, name: &str, uid: &str) -> String {
    format!("secret:{namespace}/{name}:{uid}")
}

/// Stored keys of a pod's login; empty for a login of the node.
pub fn keys(credential: &Credential) -> BTreeSet<String> {
    let Some(secret) = &credential.secret else { return BTreeSet::new() };
    BTreeSet::from([secret.clone(), format!("login:{}", credential.digest())])
}

/// `earlier` (none: the image is new) after a pull of `repository` with these keys.
pub fn after_pull(earlier: Option<Access>, repository: &str, with: BTreeSet<String>) -> Access {
    let mut access = match earlier {
        Some(access) if access.is_empty() => return access,
        earlier => earlier.unwrap_or_default(),
    };
    match access.get_mut(repository) {
        // An image that was public once stays so.
        Some(keys) if keys.is_empty() => {}
        Some(keys) if with.is_empty() => keys.clear(),
        Some(keys) => {
            let room = MOST_KEYS.saturating_sub(keys.len());
            keys.extend(with.into_iter().take(room));
        }
        None => drop(access.insert(repository.to_owned(), with)),
    }
    access
}

/// Whether a pod with these logins may have the content of the image, by any name.
pub fn is_open_to(access: &Access, keys: &BTreeSet<String>) -> bool {
    access.is_empty() || access.values().any(|known| known.is_empty() || !known.is_disjoint(keys))
}

/// Whether a pod with these pull secrets may use the image by this name without asking a registry. `registries` is the
/// node's own table: a login may be one for a mirror.
pub fn may_use(image: &ImageRecord, reference: &Reference, registries: &[RegistryConfig], logins: &[PodLogin]) -> bool {
    if image.access.is_empty() {
        return true;
    }
    let Some(known) = image.access.get(&reference.name()) else { return false };
    if known.is_empty() {
        return true;
    }
    let mut keyring = Keyring::default();
    for login in logins {
        // Its name is all that is known of it now (`security.secrets-in-memory`, before the bridge was reached).
        if login.document.is_empty() && known.iter().any(|key| key.starts_with(&login.key)) {
            return true;
        }
        // An unreadable Secret permits nothing.
        let _ = keyring.add(login.document.as_bytes(), Some(&login.key));
    }
    let places = endpoints(&registry_for(registries, &reference.registry), &reference.registry);
    let fitting = places.iter().flat_map(|place| keyring.matching(&place.host, reference));
    fitting.into_iter().any(|credential| !keys(credential).is_disjoint(known))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn login(secret: &str, password: &str) -> PodLogin {
        let document = format!(r#"{{"auths":{{"reg.example":{{"username":"u","password":"{password}"}}}}}}"#);
        PodLogin { key: secret.to_owned(), document }
    }

    fn keys_of(login: &PodLogin) -> BTreeSet<String> {
        let mut keyring = Keyring::default();
        keyring.add(login.document.as_bytes(), Some(&login.key)).unwrap();
        let reference = Reference::parse("reg.example/a").unwrap();
        keys(keyring.matching("reg.example", &reference)[0])
    }

    fn image(access: Access) -> ImageRecord {
        ImageRecord {
            id: "sha256:1".into(),
            references: Vec::new(),
            config: crate::store::image_record::ImageConfig::default(),
            layers: Vec::new(),
            size: 0,
            pulled_at: 0,
            access,
        }
    }

    #[test]
    fn login_permits_images_pulled_with_it() {
        let reference = Reference::parse("reg.example/a:1").unwrap();
        let may = |image: &ImageRecord, logins: &[PodLogin]| may_use(image, &reference, &[], logins);
        let (first, same, changed) =
            (login("secret:n/s:1", "right"), login("secret:m/t:2", "right"), login("secret:n/s:1", "new"));
        let private = image(after_pull(None, "reg.example/a", keys_of(&first)));
        assert!(may(&private, std::slice::from_ref(&first)));
        assert!(may(&private, &[login("secret:x/x:9", "other"), same]), "the same login from another Secret");
        assert!(may(&private, &[changed]), "the same Secret with another password");
        for stranger in [vec![], vec![login("secret:n/s:2", "guess")]] {
            assert!(!may(&private, &stranger));
        }
        // A Secret whose body is not here counts by its name.
        let bodiless = |name: &str| PodLogin { key: secret_key("n", name, ""), document: String::new() };
        assert!(may(&private, &[bodiless("s")]));
        assert!(!may(&private, &[bodiless("other")]));
        // The same content in another repository needs a request to the registry.
        assert!(!may_use(&private, &Reference::parse("reg.example/b:1").unwrap(), &[], &[first]));
    }

    #[test]
    fn content_is_shared_between_permitted_pods() {
        let keys = keys_of(&login("secret:n/s:1", "right"));
        let others = keys_of(&login("secret:n/t:2", "other"));
        let private = after_pull(None, "reg.example/a", keys.clone());
        assert!(is_open_to(&private, &keys) && is_open_to(&Access::new(), &BTreeSet::new()));
        assert!(!is_open_to(&private, &others) && !is_open_to(&private, &BTreeSet::new()));
        assert!(is_open_to(&after_pull(Some(private), "reg.example/b", BTreeSet::new()), &others), "public elsewhere");
    }

    #[test]
    fn public_image_stays_public() {
        let keys = keys_of(&login("secret:n/s:1", "right"));
        assert!(after_pull(Some(Access::new()), "reg.example/a", keys.clone()).is_empty(), "brought by hand");
        let open = after_pull(None, "reg.example/a", BTreeSet::new());
        let open = after_pull(Some(open), "reg.example/a", keys.clone());
        assert!(open["reg.example/a"].is_empty());
        let private = after_pull(None, "reg.example/a", keys.clone());
        assert_eq!(private["reg.example/a"], keys);
        let both = after_pull(Some(private.clone()), "reg.example/b", BTreeSet::new());
        assert_eq!(both["reg.example/a"], keys);
        assert!(after_pull(Some(private), "reg.example/a", BTreeSet::new())["reg.example/a"].is_empty());
    }
}
