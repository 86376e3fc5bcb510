//! How a device becomes a node: by the command or by a file on its boot partition. Knows no command line.

pub(crate) mod file;
pub(crate) mod invitation;
pub(crate) mod labels;
pub(crate) mod proxy;
pub(crate) mod ready;
pub(crate) mod service;

use std::collections::BTreeMap;

use edge_runtime::config::{ConfigError, ConfigFile};
use edge_runtime::link::address::BridgeAddress;
use edge_runtime::link::identity::{Identity, IdentityError};
use edge_runtime::link::join::{JoinError, Token, join};
use edge_runtime::net::proxy::Use;
use edge_runtime::paths::Paths;

/// What a device is to become.
pub(crate) struct Wanted {
    pub(crate) bridges: Vec<BridgeAddress>,
    pub(crate) node: String,
    pub(crate) token: Token,
    /// Labels of its Node object.
    pub(crate) labels: BTreeMap<String, String>,
    /// Without it the one in the configuration counts, if there is one.
    pub(crate) proxy: Option<proxy::Named>,
}

/// What it is now.
pub(crate) struct Joined {
    pub(crate) cluster: String,
    /// Why it is the same node as before: a token that was used up is refused, as it should be.
    pub(crate) refused: Option<JoinError>,
    /// Whether a running daemon has to restart: as another node, with other labels or proxy, or see [`must_restart`].
    pub(crate) restart: bool,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum BecomeError {
    #[error("this device is node {0} already; edge-runtime reset --all deletes its identity, pods and volumes")]
    Another(String),
    #[error(transparent)]
    Labels(#[from] labels::LabelError),
    #[error(transparent)]
    Proxy(#[from] proxy::ProxyError),
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error(transparent)]
    Join(#[from] JoinError),
}

impl BecomeError {
    /// Whether it would come out the same with the same words, whenever it is tried.
    pub(crate) fn is_final(&self) -> bool {
        match self {
            Self::Another(_) | Self::Labels(labels::LabelError::Others { .. }) => true,
            Self::Join(error) => error.is_final(),
            Self::Labels(_) | Self::Proxy(_) | Self::Config(_) | Self::Identity(_) => false,
        }
    }
}

/// Joins: the token is spent when everything else has been made sure of.
pub(crate) fn become_node(paths: &Paths, wanted: &Wanted) -> Result<Joined, BecomeError> {
    // A damaged one is replaced.
    let old = Identity::load(paths).ok().flatten();
    if let Some(old) = old.as_ref().filter(|old| old.node != wanted.node) {
        return Err(BecomeError::Another(old.node.clone()));
    }
    let file = paths.config_file();
    let labelled = labels::write(&file, &wanted.labels)?;
    let proxied = wanted.proxy.as_ref().map(|named| proxy::write(&file, named)).transpose()?.unwrap_or_default();
    let proxy = ConfigFile::read_lenient(&file)?.0.proxy.of(Use::Link);
    Identity::probe(paths)?;
    match (smol::block_on(join(paths, &wanted.token, &wanted.bridges, &wanted.node, &proxy)), old) {
        (Ok(identity), old) => {
            identity.save(paths)?;
            let restart = labelled || proxied || old.is_none_or(|old| must_restart(&old, &identity));
            Ok(Joined { cluster: identity.cluster, refused: None, restart })
        }
        (Err(why), Some(old)) => Ok(Joined { cluster: old.cluster, refused: Some(why), restart: labelled || proxied }),
        (Err(why), None) => Err(why.into()),
    }
}

/// Whether a running daemon does not notice another identity of its node by itself. It looks for one when a bridge refuses its
/// own: a bridge that has moved does not answer, and one of another authority it leaves before that.
fn must_restart(old: &Identity, new: &Identity) -> bool {
    old.bridges != new.bridges || old.ca != new.ca
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn daemon_restarts_for_another_bridge_or_authority() {
        let identity = |bridge: &str, certificate: &str, ca: &str| -> Identity {
            let text = serde_json::json!({
                "node": "n", "cluster": "c", "bridges": [bridge], "certificate": certificate, "ca": ca, "key": "k",
            });
            serde_json::from_value(text).unwrap()
        };
        let old = identity("https://b:1", "first", "one");
        assert!(!must_restart(&old, &identity("https://b:1", "second", "one")), "it finds a new certificate");
        assert!(must_restart(&old, &identity("https://c:1", "second", "one")), "the bridge has moved");
        assert!(must_restart(&old, &identity("https://b:1", "second", "two")), "the authority is another one");
    }

    #[test]
    fn only_what_time_cannot_cure_is_final() {
        let bridge: BridgeAddress = "https://b:1".parse().unwrap();
        let refused = |status| {
            let (bridge, message) = (bridge.clone(), "used".into());
            JoinError::Refused { bridge, status, message, by_bridge: true }
        };
        assert!(BecomeError::Join(refused(401)).is_final());
        assert!(!BecomeError::Join(refused(503)).is_final());
        assert!(!BecomeError::Join(JoinError::NoBridge).is_final());
        assert!(BecomeError::Another("n".into()).is_final());
    }
}
