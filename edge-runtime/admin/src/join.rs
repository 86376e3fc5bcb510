//! How a device becomes a node: by the command or by a file on its boot partition. Knows no command line.

pub(crate) mod file;
mod hardware;
pub(crate) mod invitation;
pub(crate) mod labels;
pub(crate) mod proxy;
pub(crate) mod ready;
pub(crate) mod service;

use std::collections::BTreeMap;

use edge_protocol::node_labels;
use edge_runtime::config::{ConfigError, ConfigFile};
use edge_runtime::link::address::BridgeAddress;
use edge_runtime::link::identity::{Identity, IdentityError};
use edge_runtime::link::join::{JoinError, Pauses, Token, enrol, join};
use edge_runtime::net::proxy::{Proxy, Use};
use edge_runtime::paths::Paths;
use sampan_sys::random::random;

/// What a device is to become.
pub(crate) struct Wanted {
    pub(crate) bridges: Vec<BridgeAddress>,
    /// `None` with a claim token: the bridge names the board.
    pub(crate) node: Option<String>,
    pub(crate) token: Token,
    /// Labels of its Node object.
    pub(crate) labels: BTreeMap<String, String>,
    /// Without it the one in the configuration counts, if there is one.
    pub(crate) proxy: Option<proxy::Named>,
}

/// What it is now.
pub(crate) struct Joined {
    pub(crate) node: String,
    pub(crate) cluster: String,
    /// Why it is the same node as before: a token that was used up is refused, as it should be.
    pub(crate) refused: Option<BecomeError>,
    /// Whether a running daemon has to restart: as another node, with other labels or proxy, or see [`must_restart`].
    pub(crate) restart: bool,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum BecomeError {
    #[error("this device is node {0} already; edge-runtime reset --all deletes its identity, pods and volumes")]
    Another(String),
    #[error("a claim token is for a board that is no node yet")]
    NodeAlready,
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
    /// Seconds until the next attempt, if the answer of the bridge says when one is of use.
    fn retry_seconds(&self) -> Option<u64> {
        if let Self::Join(error) = self { error.retry_seconds() } else { None }
    }

    /// Whether it would come out the same with the same words, whenever it is tried.
    pub(crate) fn is_final(&self) -> bool {
        match self {
            Self::Another(_) | Self::NodeAlready | Self::Labels(labels::LabelError::Others { .. }) => true,
            Self::Join(error) => error.is_final(),
            Self::Labels(_) | Self::Proxy(_) | Self::Config(_) | Self::Identity(_) => false,
        }
    }
}

/// Joins: the token is spent when everything else has been made sure of.
pub(crate) fn become_node(paths: &Paths, wanted: &Wanted) -> Result<Joined, BecomeError> {
    // A damaged one is replaced.
    let old = Identity::load(paths).ok().flatten();
    let Some(node) = wanted.node.as_deref() else { return become_board(paths, wanted, old) };
    if let Some(old) = old.as_ref().filter(|old| old.node != node) {
        return Err(BecomeError::Another(old.node.clone()));
    }
    let labelled = labels::write(&paths.config_file(), &wanted.labels)?;
    let (proxy, proxied) = proxy_of(paths, wanted)?;
    Identity::probe(paths)?;
    match (smol::block_on(join(paths, &wanted.token, &wanted.bridges, node, &proxy)), old) {
        (Ok(identity), old) => {
            identity.save(paths)?;
            let restart = labelled || proxied || old.is_none_or(|old| must_restart(&old, &identity));
            Ok(Joined { node: identity.node, cluster: identity.cluster, refused: None, restart })
        }
        (Err(why), Some(old)) => {
            let restart = labelled || proxied;
            Ok(Joined { node: old.node, cluster: old.cluster, refused: Some(why.into()), restart })
        }
        (Err(why), None) => Err(why.into()),
    }
}

/// Enrols with a claim token. A board that is a node already has enrolled, before a power cut perhaps. An identity that
/// cannot be written is lost, but the bridge gives it again.
fn become_board(paths: &Paths, wanted: &Wanted, old: Option<Identity>) -> Result<Joined, BecomeError> {
    if let Some(old) = old {
        let refused = Some(BecomeError::NodeAlready);
        return Ok(Joined { node: old.node, cluster: old.cluster, refused, restart: false });
    }
    let (proxy, _) = proxy_of(paths, wanted)?;
    let hardware = hardware::look(paths.root());
    let enrolled = smol::block_on(enrol(paths, &wanted.token, &wanted.bridges, &hardware, &proxy))?;
    let mut all = enrolled.labels;
    all.extend(wanted.labels.clone());
    all.retain(|key, value| node_labels::problem(key, value).is_none());
    // Before the identity, after which nothing is tried again. The board becomes a node with labels or without.
    if let Err(error) = labels::write(&paths.config_file(), &all) {
        log::warn!("labels of node {} are not written: {error}", enrolled.identity.node);
    }
    enrolled.identity.save(paths)?;
    let Identity { node, cluster, .. } = enrolled.identity;
    Ok(Joined { node, cluster, refused: None, restart: true })
}

/// Writes the proxy into the configuration. Returns the proxy of the link, and whether it is another than before.
fn proxy_of(paths: &Paths, wanted: &Wanted) -> Result<(Proxy, bool), BecomeError> {
    let file = paths.config_file();
    let proxied = wanted.proxy.as_ref().map(|named| proxy::write(&file, named)).transpose()?.unwrap_or_default();
    Ok((ConfigFile::read_lenient(&file)?.0.proxy.of(Use::Link), proxied))
}

/// Same as [`become_node`], again and again until it has joined or never will. Tells `note` each new reason to wait.
pub(crate) fn until_joined(paths: &Paths, wanted: &Wanted, mut note: impl FnMut(&str)) -> Result<Joined, BecomeError> {
    let mut pauses = Pauses::default();
    let mut last = String::new();
    loop {
        let error = match become_node(paths, wanted) {
            Err(error) if !error.is_final() => error,
            done => return done,
        };
        let text = error.to_string();
        if text != last {
            note(&text);
            last = text;
        }
        std::thread::sleep(pauses.next(error.retry_seconds(), random()));
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
        let waiting = JoinError::Waiting { node: "n".into(), request: "r".into(), seconds: 30 };
        let waiting = BecomeError::Join(waiting);
        assert!(!waiting.is_final() && waiting.retry_seconds() == Some(30));
    }

    #[test]
    fn claim_token_leaves_a_node_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let paths = Paths::new(folder.path());
        let text = r#"{"node":"n","cluster":"c","bridges":["https://b:1"],"certificate":"a","ca":"b","key":"k"}"#;
        let identity: Identity = serde_json::from_str(text).unwrap();
        identity.save(&paths).unwrap();
        let token = Token::parse(&format!("sampan2.{}.x", "0a".repeat(32))).unwrap();
        let wanted = Wanted { bridges: Vec::new(), node: None, token, labels: BTreeMap::new(), proxy: None };
        let joined = become_node(&paths, &wanted).unwrap();
        assert!(matches!(joined.refused, Some(BecomeError::NodeAlready)) && !joined.restart);
        assert_eq!((joined.node.as_str(), joined.cluster.as_str()), ("n", "c"));
    }
}
