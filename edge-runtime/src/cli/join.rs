//! `edge-runtime join`: become a node of a cluster with a single-use token.

use super::verb::{Flag, Given, Operands, Verb};
use super::{CliError, print, read};
use crate::link::address::BridgeAddress;
use crate::link::identity::Identity;
use crate::link::join::{Token, join};

pub(super) const VERB: Verb = Verb {
    name: "join",
    about: "become a node of a cluster with a single-use token",
    operands: Operands::None,
    flags: &[
        Flag::value("bridge", "URL", "of the bridge, with its port (repeatable)"),
        Flag::value("token", "TOKEN", "what cloud-bridge token create printed"),
        Flag::value("token-file", "FILE", "the same from a file, or - for standard input"),
        Flag::value("node", "NAME", "the name that the token was made for"),
    ],
    run,
};

fn run(given: Given) -> Result<(), CliError> {
    let bridges: Vec<BridgeAddress> = given.all("bridge")?;
    if bridges.is_empty() {
        return Err(CliError::Usage("join needs --bridge https://HOST:PORT".into()));
    }
    let token = match given.path("token-file") {
        Some(file) => Some(String::from_utf8(read(&file)?)?.trim().to_owned()),
        None => given.one::<String>("token")?,
    };
    let token = token.ok_or_else(|| {
        CliError::Usage("join needs --token or --token-file; cloud-bridge token create prints one".into())
    })?;
    let token = Token::parse(&token)?;
    let node: Option<String> = given.one("node")?;
    let node = node.ok_or_else(|| CliError::Usage("join needs --node, the name the token was made for".into()))?;
    let paths = given.paths()?;
    // A damaged one is replaced.
    if let Ok(Some(old)) = Identity::load(&paths)
        && old.node != node
    {
        return Err(CliError::Failed(format!(
            "this device is node {} already; edge-runtime reset --all makes it nobody again",
            old.node
        )));
    }
    Identity::probe(&paths)?;
    let identity = smol::block_on(join(&token, &bridges, &node))?;
    identity.save(&paths)?;
    print(&format!("joined cluster {} as node {node}; start it with: edge-runtime run", identity.cluster))
}
