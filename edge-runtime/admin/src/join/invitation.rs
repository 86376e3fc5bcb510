//! What `cloud-bridge token create` and `claim` print in one word: a token, and the node and bridges that it is for. Pure.

use edge_protocol::join_token::{self, DamagedPlace};
use edge_runtime::link::address::{AddressError, BridgeAddress};
use edge_runtime::link::join::{JoinError, Token};

/// A token that was read. One of an older bridge, or without its place, names no node and no bridges. A claim token names no
/// node.
pub(crate) struct Invitation {
    pub(crate) token: Token,
    pub(crate) node: Option<String>,
    pub(crate) bridges: Vec<BridgeAddress>,
}

/// Says what is wrong with a token without showing it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InvitationError {
    #[error(transparent)]
    Token(#[from] JoinError),
    #[error(transparent)]
    Place(#[from] DamagedPlace),
    #[error("join token: {0}")]
    Address(#[from] AddressError),
}

impl Invitation {
    pub(crate) fn parse(text: &str) -> Result<Self, InvitationError> {
        let (token, place) = join_token::split(text)?;
        let token = Token::parse(token)?;
        let Some(place) = place else { return Ok(Self { token, node: None, bridges: Vec::new() }) };
        let bridges = place.bridges.iter().map(|bridge| bridge.parse()).collect::<Result<_, _>>()?;
        let node = (!token.is_claim()).then_some(place.node);
        Ok(Self { token, node, bridges })
    }
}

#[cfg(test)]
mod tests {
    use edge_protocol::join_token::Place;

    use super::*;

    fn token() -> String {
        format!("sampan1.{}.secret", "0a".repeat(32))
    }

    fn with(bridge: &str) -> String {
        join_token::with_place(&token(), &Place { node: "edge-1".into(), bridges: vec![bridge.into()] })
    }

    fn wrong(text: &str) -> String {
        Invitation::parse(text).err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn token_names_its_node_and_bridges() {
        let read = Invitation::parse(&with("https://b:7443")).map_err(|error| error.to_string()).unwrap();
        assert_eq!(read.node.as_deref(), Some("edge-1"));
        assert_eq!(read.bridges.iter().map(ToString::to_string).collect::<Vec<_>>(), ["https://b:7443"]);
        let old = Invitation::parse(&token()).map_err(|error| error.to_string()).unwrap();
        assert!(old.node.is_none() && old.bridges.is_empty());
    }

    #[test]
    fn claim_token_names_bridges_alone() {
        let token = token().replace("sampan1", "sampan2");
        let place = Place { node: join_token::NO_NODE.into(), bridges: vec!["https://b:7443".into()] };
        let read =
            Invitation::parse(&join_token::with_place(&token, &place)).map_err(|error| error.to_string()).unwrap();
        assert!(read.token.is_claim() && read.node.is_none() && read.bridges.len() == 1);
    }

    #[test]
    fn damage_is_named_and_the_token_is_not_shown() {
        let whole = with("https://b:7443");
        let cut = wrong(&whole[..whole.len() - 3]);
        assert!(cut.contains("cut off") && !cut.contains("secret"), "{cut}");
        assert!(wrong(&with("http://b")).contains("must be https://HOST:PORT"));
        assert!(wrong("sampan1.hush").contains("must look like"));
    }
}
